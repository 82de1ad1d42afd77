"""Sends notifications by the notifiers of the sections ``[notifier:NAME]``, in the background."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchx_specs.errors import PluginError, RequestError, TorchXError, nearest, one_line
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import ALL

logger = logging.getLogger(__name__)

#: How long a command that is about to end waits for the next notification, in seconds.
DEADLINE = 20.0
#: After how many seconds of waiting for a notifier the user is informed.
QUIET = 3.0


class Deliveries:
    """Sends notifications by several notifiers, each in a thread of its own.

    If a notifier fails, a warning is logged.

    Args:
        names: The names of the notifiers.
        sections: All sections, by the name of the notifier.

    Raises:
        RequestError: A section is missing, has an unknown type, or is refused by its plugin.
        PluginError: A plugin fails.
    """

    def __init__(self, names: Iterable[str], sections: Mapping[str, Mapping[str, str]]) -> None:
        self._workers = [_Worker(name, _open(name, sections)) for name in names]

    def send(self, data: Mapping[str, Any]) -> None:
        """Send a notification in the background."""
        for worker in self._workers:
            worker.waiting.put(data)

    def finish(self, deadline: float | None = None) -> None:
        """Wait until all notifications are sent; give up on notifiers that send nothing for long.

        Args:
            deadline: How long to wait for a notifier's next notification, in seconds; None means
                :data:`DEADLINE`. The time is that of all notifiers together.
        """
        limit, began = DEADLINE if deadline is None else deadline, time.monotonic()
        for worker in self._workers:
            worker.finish(limit, began)


class _Worker:
    """The thread of one notifier; ``waiting`` has the notifications that are not sent yet."""

    def __init__(self, name: str, notify: Callable[[Mapping[str, Any]], None]) -> None:
        self._name = name
        self._notify = notify
        self.waiting: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._sent_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self, limit: float, began: float) -> None:
        self.waiting.put(None)
        is_announced = False
        while self._thread.is_alive():
            self._thread.join(0.1)
            now, give_up_at = time.monotonic(), max(began, self._sent_at) + limit
            if now > give_up_at:
                logger.warning(
                    "notifier %s is given up after %g s; %d of its notifications may be lost",
                    self._name,
                    limit,
                    self.waiting.qsize(),  # with None, and without the one that is being sent
                )
                return
            if not is_announced and now - began >= QUIET:
                is_announced = True
                logger.info(
                    "notifier %s has not sent its notification yet; waiting at most %g s more"
                    " (Ctrl-C ends the wait)",
                    self._name,
                    round(give_up_at - now),
                )

    def _run(self) -> None:
        while (data := self.waiting.get()) is not None:
            try:
                self._notify(data)
            except Exception as e:  # an error of a notifier must not affect the job
                kind = "" if isinstance(e, TorchXError) else f"{type(e).__name__}: "
                logger.warning(
                    "notifier %s: no notification of %s: %s%s",
                    self._name,
                    data.get("handle"),
                    kind,
                    one_line(e),
                )
            self._sent_at = time.monotonic()


def _open(
    name: str, sections: Mapping[str, Mapping[str, str]]
) -> Callable[[Mapping[str, Any]], None]:
    """Return the notifier of a section.

    The values of a section may be secrets, so no message contains them. The plugin is responsible
    for its own messages.
    """
    section = sections.get(name)
    if section is None:
        have = f" notifiers: {', '.join(sections)}" if sections else ""
        raise RequestError(
            f"--notify {name}: .torchxconfig has no section [notifier:{name}];"
            f"{nearest(name, sections)}{have}".rstrip(";")
        )
    kind = section.get("type", name).strip()
    plugins = get_manager().notifiers()
    record = None if kind == ALL else plugins.find(kind)
    if record is None:
        types = ", ".join(known for known in plugins.names() if known != ALL)
        hint = plugins.install_hint(kind) or f"; types: {types}"
        raise RequestError(f"[notifier:{name}] type: there is no notifier '{kind}'{hint}")
    try:
        notify: Callable[[Mapping[str, Any]], None] = record.load()(dict(section))
    except PluginError:
        raise
    except TorchXError as e:
        raise RequestError(f"[notifier:{name}]: {e}") from e
    except Exception as e:
        raise PluginError(
            f"notifier '{kind}' of {record.origin} failed for [notifier:{name}]:"
            f" {type(e).__name__}: {one_line(e)}"
        ) from e
    return notify
