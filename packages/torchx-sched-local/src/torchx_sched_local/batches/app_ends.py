"""Reports the ends of apps to the thread that supervises them.

A process such as the driver of a sweep does nothing but start apps and record how they end. One
thread does both, so that no thread has to wait for another thread or poll the states of apps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torchx_sched_local.supervise.reactor import Reactor
    from torchx_sched_local.supervise.supervision import Supervision
    from torchx_specs.model.status import AppState


class AppEnd(NamedTuple):
    """The end of an app.

    Attributes:
        app_id: The app's id.
        state: The app's final state.
        msg: Why the app is in this state; may be empty.
    """

    app_id: str
    state: AppState
    msg: str


class AppEnds:
    """Collects the ends of this process's apps; only the thread that calls ``wait`` may use it.

    Args:
        reactor: The event loop, which :meth:`wait` runs.
    """

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._running: dict[str, Supervision] = {}
        self._ended: list[AppEnd] = []

    def add(self, supervision: Supervision, forget: Callable[[], object]) -> None:
        """Add an app, so that :meth:`wait` reports its end.

        Args:
            supervision: The app's supervision. Its method ``begin`` must not have been called yet.
            forget: Called once the app has ended, to drop the app from memory.
        """
        app_id = supervision.run.app_id
        self._running[app_id] = supervision

        def ended(state: AppState) -> None:
            del self._running[app_id]
            self._ended.append(AppEnd(app_id, state, supervision.run.msg))
            forget()

        supervision.on_end.append(ended)

    def wait(self, seconds: float) -> list[AppEnd]:
        """Wait for events, handle them, and return the app ends since the last call.

        Args:
            seconds: How long to wait for an event at most. If ends are known already, do not wait.
        """
        self._reactor.run_once(0.0 if self._ended else seconds)
        ended, self._ended = self._ended, []
        return ended

    def cancel(self, app_ids: Iterable[str]) -> None:
        """Request the cancellation of running apps; :meth:`wait` reports their ends."""
        for app_id in app_ids:
            supervision = self._running.get(app_id)
            if supervision is not None:
                supervision.cancel_soon()
