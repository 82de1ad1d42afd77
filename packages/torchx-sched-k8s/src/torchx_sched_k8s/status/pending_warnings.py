"""Log why an app is still pending, for callers that poll the app and show no status."""

from __future__ import annotations

import logging
import time

from torchx_specs.model.status import AppState, given
from torchx_specs.schedulers.api import DescribeAppResponse

#: How long an app may be pending before the reason is logged, in seconds.
_QUIET_SECONDS = 2.0


class PendingWarnings:
    """Logs the reasons why apps are pending, each reason of an app only once.

    Commands that wait for an app poll the app, but show no status. Nothing is logged for an app
    that has been pending for less than two seconds, so a command that queries the app once logs
    nothing.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._logged: set[tuple[str, str]] = set()

    def observe(self, app: DescribeAppResponse | None) -> None:
        """Log why an app is pending, unless the reason was logged before.

        Args:
            app: The present description of the app; None if the app does not exist.
        """
        if app is None:
            return
        if app.state != AppState.PENDING:
            self._since.pop(app.app_id, None)
            return
        now = time.monotonic()
        since = self._since.setdefault(app.app_id, now)
        reason = (app.app_id, app.msg)
        if given(app.msg) is None or now - since < _QUIET_SECONDS or reason in self._logged:
            return
        self._logged.add(reason)
        logging.getLogger(__name__).warning("%s is still pending: %s", *reason)
