"""Follows a submitted app in the foreground: shows its logs, waits for its end, handles Ctrl-C."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, NoReturn

from torchx_cli.exit_codes import interrupt_exit_code
from torchx_cli.launch.reports import StateChanges, log_end, say_what_continues
from torchx_cli.logs.copies import log_copies, save_logs
from torchx_cli.logs.reader import LogReader
from torchx_cli.logs.replicas import LogSource, described_replicas
from torchx_cli.output.colors import takes_color
from torchx_cli.runner_context import existing
from torchx_specs.model.status import is_started
from torchx_specs.schedulers.logs import LogQuery

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

#: After the app has ended, stop reading its logs if no line was added for this many seconds.
_SILENCE = 10.0


class _BackgroundLogs(threading.Thread):
    """Copies the logs of an app to standard error; to be started once the app has started."""

    def __init__(self, runner: Runner, app_handle: str) -> None:
        super().__init__(name="logs", daemon=True)
        self._runner = runner
        self._app_handle = app_handle
        query = LogQuery(should_tail=True, partial=True)
        self.reader = LogReader(
            runner.log_blocks, app_handle, query, sys.stderr, takes_color(sys.stderr)
        )
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self.reader.read_all(described_replicas(self._runner, LogSource(self._app_handle)))
        except BaseException as e:  # finish() reports the error, which must not affect the job
            self._error = e

    def finish(self) -> None:
        """Wait until the logs of an ended app are copied, or no line was added for a while.

        A warning is logged if the logs end too late or cannot be read.
        """
        seen = -1
        quiet_since = time.monotonic()
        while self.is_alive():
            if self.reader.lines != seen or self.reader.is_writing:
                seen, quiet_since = self.reader.lines, time.monotonic()
            elif time.monotonic() - quiet_since > _SILENCE:
                logger.warning("the app has ended, but its logs have not; the rest is not shown")
                break
            self.join(0.2)
        self.reader.stop()
        if self._error is not None and not isinstance(self._error, BrokenPipeError):
            logger.warning("the logs are incomplete: %s", self._error)


def follow_in_foreground(
    runner: Runner, app_handle: str, *, show_logs: bool, owned: bool
) -> AppStatus:
    """Wait until an app has ended, and return its status.

    If log sinks are configured, the app's logs are saved in them.

    On an interrupt, such as Ctrl-C, an owned app is cancelled, and the command ends when the app
    has ended; a second one kills the app. Any other app continues, and the command ends at once.

    Args:
        runner: The runner that submitted the app.
        app_handle: The app.
        show_logs: Whether to copy the app's logs to standard error.
        owned: Whether the app ends with this process (``Scheduler.lives_in_client``).

    Raises:
        KeyboardInterrupt: The command was interrupted or terminated.
        UnknownAppException: The app no longer exists.
    """
    changes = StateChanges()
    logs = _BackgroundLogs(runner, app_handle)
    copies = log_copies()
    has_started = False

    def observe(status: AppStatus) -> None:
        nonlocal has_started
        changes.observe(status)
        if has_started or not is_started(status.state):
            return
        has_started = True
        if show_logs:
            logs.start()
        if copies is not None:
            save_logs(runner, app_handle, copies)

    with nullcontext() if copies is None else copies.saving():
        try:
            interval = 1 if owned or show_logs or copies is not None else 10
            status = runner.wait(app_handle, wait_interval=interval, observe=observe)
        except KeyboardInterrupt as e:
            _interrupted(runner, app_handle, logs, e, owned)
        logs.finish()
    return existing(status, app_handle)


def _interrupted(
    runner: Runner,
    app_handle: str,
    logs: _BackgroundLogs,
    error: KeyboardInterrupt,
    owned: bool,
) -> NoReturn:
    if not owned:
        say_what_continues(app_handle)
        logs.reader.stop()
        raise error
    try:
        logger.warning("cancelling %s (interrupt again to kill it)", app_handle)
        runner.cancel(app_handle)
        status = runner.wait(app_handle, wait_interval=1)
        if logs.is_alive():
            logs.join(2.0)
        logs.reader.stop()
        if status is not None:
            log_end(status)
    except KeyboardInterrupt:
        logger.warning("killing %s", app_handle)
        try:
            runner.kill(app_handle)
        finally:
            # The guard process of an attached local app ends the app when this process ends.
            os._exit(interrupt_exit_code(error))
    raise error
