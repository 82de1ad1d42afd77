"""Makes notifications, and sends them in the background."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import TorchXError, one_line
from torchx_specs.redaction import masked

if TYPE_CHECKING:
    from torchx_cli.notifications.configured import NamedNotifier
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

#: How long a command that is about to end waits for the next notification, in seconds.
DEADLINE = 90.0
#: After how many seconds of waiting for a notifier the user is informed.
QUIET = 3.0
VERSION = 1


def job_data(app_handle: str, status: AppStatus | None, name: str) -> dict[str, Any]:
    """Return data about a job, with secrets masked.

    Args:
        app_handle: The app.
        status: Its status; None if the scheduler no longer knows the app.
        name: Name of the app.
    """
    from torchx_cli.output.status_data import status_data
    from torchx_specs.model.status import AppState, AppStatus

    if status is None:
        status = AppStatus(AppState.UNKNOWN, msg="the scheduler no longer has this app")
    data = status_data(app_handle, status)
    keys = ("handle", "app_id", "scheduler", "state", "submitted", "started", "ended")
    shown = {key: data[key] for key in (*keys, "summary", "first_failure", "ui_url")}
    result: dict[str, Any] = masked({"name": name, **shown})
    return result


def job_ended(app_handle: str, status: AppStatus | None, name: str) -> dict[str, Any]:
    """Return the notification of an ended job; the parameters are those of :func:`job_data`."""
    return {"version": VERSION, "event": "job.ended", **job_data(app_handle, status, name)}


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
        """Wait until all notifications are sent; give up on a notifier that sends nothing for long.

        Args:
            deadline: How long to wait for a notifier's next notification, in seconds; None means
                :data:`DEADLINE`.
        """
        limit = DEADLINE if deadline is None else deadline
        for worker in self._workers:
            worker.finish(limit)


class _Worker:
    """The thread of one notifier."""

    def __init__(self, notifier: NamedNotifier) -> None:
        self._notifier = notifier
        self._waiting: queue.SimpleQueue[Mapping[str, Any] | None] = queue.SimpleQueue()
        self._sent = 0
        self._thread: threading.Thread | None = None

    def put(self, data: Mapping[str, Any]) -> None:
        if self._thread is None:
            name = f"notify-{self._notifier.name}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._waiting.put(data)

    def finish(self, limit: float) -> None:
        if self._thread is None:
            return
        self._waiting.put(None)
        began = time.monotonic()
        sent, give_up_at = self._sent, began + limit
        is_announced = False
        while self._thread.is_alive():
            self._thread.join(0.1)
            if not is_announced and time.monotonic() - began >= QUIET:
                is_announced = True
                logger.info(
                    "notifier %s has not sent its notification yet; waiting at most %g s more"
                    " (Ctrl-C ends the wait)",
                    self._notifier.name,
                    round(give_up_at - time.monotonic()),
                )
            if self._sent != sent:
                sent, give_up_at = self._sent, time.monotonic() + limit
            elif time.monotonic() > give_up_at:
                logger.warning(
                    "notifier %s did not end within %g s; its notifications may be lost",
                    self._notifier.name,
                    limit,
                )
                return

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
            self._sent += 1
