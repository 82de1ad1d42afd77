"""Staying with an app that was just submitted: its logs, its end, and Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from torchx_cli.exit_codes import Terminated, interrupt_exit_code
from torchx_cli.logs.identifier import LogSource
from torchx_cli.logs.reader import LogOptions, LogReader
from torchx_cli.logs.replicas import started_replicas
from torchx_cli.output.colors import takes_color
from torchx_specs.errors import UnknownAppException

if TYPE_CHECKING:
    from types import FrameType

    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

#: How long the logs of an ended app may be silent, in seconds, before they count as ended too.
_SILENCE = 10.0


class _BackgroundLogs:
    """The logs of an app on standard error, from when it has started."""

    def __init__(self, runner: Runner, app_handle: str) -> None:
        self._runner = runner
        self._app_handle = app_handle
        self._reader: LogReader | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def _run(self) -> None:
        try:
            handle, options = self._app_handle, LogOptions(tail=True)
            replicas = started_replicas(self._runner, LogSource(handle))
            self._reader = LogReader(
                self._runner.log_blocks,
                handle,
                replicas,
                options,
                sys.stderr,
                takes_color(sys.stderr),
            )
            self._reader.read_all()
        except BaseException as e:  # the job matters more than its logs
            self._error = e
        finally:
            self._ended.set()

    def wait(self, timeout: float) -> bool:
        return self._ended.wait(timeout)

    def finish(self) -> None:
        """Waits for the rest of the logs of an app that has ended."""
        seen = -1
        quiet_since = time.monotonic()
        while not self._ended.wait(0.2):
            lines = self._reader.lines if self._reader else 0
            if lines != seen or (self._reader is not None and self._reader.is_writing):
                seen, quiet_since = lines, time.monotonic()
            elif time.monotonic() - quiet_since > _SILENCE:
                logger.warning("the logs have no end although the app has ended")
                break
        self.stop()
        if self._error is not None and not isinstance(self._error, BrokenPipeError):
            logger.warning("the logs are incomplete: %s", self._error)

    def stop(self) -> None:
        """Write nothing more."""
        if self._reader is not None:
            self._reader.stop()


def follow_in_foreground(
    runner: Runner, app_handle: str, *, show_logs: bool, owned: bool
) -> AppStatus:
    """Waits for the end of an app and returns its status.

    Ctrl-C and SIGTERM cancel an app that lives and dies with this process, wait for its end, and
    end the command; a second one doesn't wait. Any other app goes on.

    Args:
        runner: submitted it
        app_handle: the app
        show_logs: True to copy its logs to standard error
        owned: True if it lives and dies with this process

    Raises:
        KeyboardInterrupt: interrupted
        UnknownAppException: the app vanished
    """
    logs = _BackgroundLogs(runner, app_handle) if show_logs else None
    with _sigterm_interrupts():
        try:
            if logs is not None:
                logs.start()
                _wait_for_logs(runner, app_handle, logs)
            status = runner.wait(app_handle, wait_interval=1 if owned else 10)
        except KeyboardInterrupt as e:
            _interrupted(runner, app_handle, logs, e, owned)
    if logs is not None:
        logs.finish()
    if status is None:
        raise UnknownAppException(app_handle)
    return status


def _wait_for_logs(runner: Runner, app_handle: str, logs: _BackgroundLogs) -> None:
    """Returns when the logs have ended, which is as good as the end of the app, or that itself."""
    while not logs.wait(1.0):
        status = runner.status(app_handle)
        if status is None or status.is_terminal():
            return


def _interrupted(
    runner: Runner,
    app_handle: str,
    logs: _BackgroundLogs | None,
    error: KeyboardInterrupt,
    owned: bool,
) -> NoReturn:
    if not owned:
        logger.warning("%s goes on; 'torchx cancel %s' ends it", app_handle, app_handle)
        if logs is not None:
            logs.stop()
        raise error
    try:
        logger.warning("cancelling %s (once more: kill it at once)", app_handle)
        runner.cancel(app_handle)
        status = runner.wait(app_handle, wait_interval=1)
        if logs is not None:
            logs.wait(2.0)
            logs.stop()
        if status is not None:
            logger.info("job finished: %s", status.state.name)
    except KeyboardInterrupt:
        logger.warning("killing %s", app_handle)
        try:
            runner.kill(app_handle)
        finally:
            # what guards an attached app ends it when this process is gone, however it goes
            os._exit(interrupt_exit_code(error))
    raise error


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM raise Terminated in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated()

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
