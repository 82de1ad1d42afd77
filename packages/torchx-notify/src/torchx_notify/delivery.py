"""Sends notifications in the background."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx_notify.configured import NamedNotifier, open_notifiers
from torchx_specs.errors import TorchXError, one_line

logger = logging.getLogger(__name__)

#: How long a command that is about to end waits for the next notification, in seconds.
DEADLINE = 20.0
#: After how many seconds of waiting for a notifier the user is informed.
QUIET = 3.0


def open_deliveries(names: Iterable[str], sections: Mapping[str, Mapping[str, str]]) -> Deliveries:
    """Return the deliveries to some notifiers; see :func:`.configured.open_notifiers`."""
    return Deliveries(open_notifiers(names, sections))


class Deliveries:
    """Sends notifications by several notifiers, each in a thread of its own.

    If a notifier fails, a warning is logged.

    Args:
        notifiers: The notifiers.
    """

    def __init__(self, notifiers: Sequence[NamedNotifier]) -> None:
        self._workers = [_Worker(notifier) for notifier in notifiers]

    def send(self, data: Mapping[str, Any]) -> None:
        """Send a notification in the background."""
        for worker in self._workers:
            worker.put(data)

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
    """The thread of one notifier."""

    def __init__(self, notifier: NamedNotifier) -> None:
        self._notifier = notifier
        self._waiting: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._sent_at = 0.0
        self._thread: threading.Thread | None = None

    def put(self, data: Mapping[str, Any]) -> None:
        if self._thread is None:
            name = f"notify-{self._notifier.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._waiting.put(data)

    def finish(self, limit: float, began: float) -> None:
        if self._thread is None:
            return
        self._waiting.put(None)
        is_announced = False
        while self._thread.is_alive():
            self._thread.join(0.1)
            now, give_up_at = time.monotonic(), max(began, self._sent_at) + limit
            if now > give_up_at:
                logger.warning(
                    "notifier %s is given up after %g s; %d of its notifications may be lost",
                    self._notifier.name,
                    limit,
                    self._waiting.qsize(),  # with None, and without the one that is being sent
                )
                return
            if not is_announced and now - began >= QUIET:
                is_announced = True
                logger.info(
                    "notifier %s has not sent its notification yet; waiting at most %g s more"
                    " (Ctrl-C ends the wait)",
                    self._notifier.name,
                    round(give_up_at - now),
                )

    def _run(self) -> None:
        while (data := self._waiting.get()) is not None:
            try:
                self._notifier.notify(data)
            except Exception as e:  # an error of a notifier must not affect the job
                kind = "" if isinstance(e, TorchXError) else f"{type(e).__name__}: "
                logger.warning(
                    "notifier %s: no notification of %s: %s%s",
                    self._notifier.name,
                    data.get("handle"),
                    kind,
                    one_line(e),
                )
            self._sent_at = time.monotonic()
