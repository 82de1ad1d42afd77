"""Logs how the state of an app changes while a command waits for the app."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING

from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

#: The shortest time between two messages that differ only in their numbers, in seconds.
_REPEAT_SECONDS = 60.0
_NUMBER = re.compile(r"\d+")


class StateChanges:
    """Logs the changes of an app's state while a command waits for the app; thread-safe.

    Each new state, reason and restart is logged. If only the numbers in a reason have changed, the
    message is logged at most once a minute. The end of the app is not logged, because the caller
    reports the end.

    Args:
        shows_first_run: Whether to log an app that runs at the first poll. If False, nothing is
            logged until this app restarts or stops running.
        clock: Function that returns a time in seconds.
    """

    def __init__(
        self, shows_first_run: bool = False, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._shows_first_run = shows_first_run
        self._clock = clock
        self._lock = threading.Lock()
        self._state: AppState | None = None
        self._restarts = 0
        # When a message was logged last, by its state and its reason without numbers.
        self._logged: dict[str, float] = {}

    def observe(self, status: AppStatus) -> None:
        """Log the status if the state, the reason or the number of restarts has changed.

        Args:
            status: The present status of the app.
        """
        with self._lock:
            before, self._state = self._state, status.state
            has_restarted = before is not None and status.num_restarts > self._restarts
            self._restarts = max(self._restarts, status.num_restarts)
            runs_from_the_start = (
                before in (None, AppState.RUNNING)
                and not self._logged
                and not self._shows_first_run
            )
            if is_terminal(status.state) or (
                status.state == AppState.RUNNING and runs_from_the_start and not has_restarted
            ):
                return
            # This module is part of `torchx run`, which must start quickly.
            from torchx_cli.output.status_text import detail, summary

            reason = detail(status)
            kind = f"{status.state.name} {_NUMBER.sub('', reason)}"
            now = self._clock()
            if status.state == before and not has_restarted and kind in self._logged:
                has_numbers = _NUMBER.search(reason) is not None
                if not has_numbers or now - self._logged[kind] < _REPEAT_SECONDS:
                    return
            self._logged[kind] = now
            text = summary(status)
            if has_restarted:
                ended = status.attempts[-2:-1]
                why = f" after {ended[0].reason}" if ended else ""
                text = f"restart {status.num_restarts}{why}: {text}"
            logger.info("%s", text)
