"""Saves the logs of apps in all configured log sinks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx_kit.retry import Backoff
from torchx_log_sinks.copies import LogCopy, find_copy
from torchx_log_sinks.saver import LogSaver
from torchx_log_sinks.sinks import open_sinks
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_specs.schedulers.log_items import Replica

logger = logging.getLogger(__name__)

#: How long to wait for the copies of an app that has ended, in seconds, if no line is added.
SILENCE_SECONDS = 30.0
# How long an interrupted command waits for its copies to stop, in seconds.
_INTERRUPTED_SECONDS = 2.0
# The pauses between two polls of an app that has not started, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0


class Copies:
    """Saves the logs of apps in log sinks, and finds the copies.

    The ``runner`` of the methods is a ``torchx_runner.Runner``.

    Args:
        urls: The URLs of the sinks, by NAME of their sections ``[log_sink:NAME]``.

    Attributes:
        sinks: The usable sinks.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.sinks = open_sinks(urls)
        self._savers: list[LogSaver] = []

    def find(self, app_handle: str) -> LogCopy | None:
        """Return the copy of an app's logs, a complete one if there is any; None without a copy."""
        return find_copy(self.sinks, app_handle)

    def start(self, runner: Any, app_handle: str, replicas: Sequence[Replica]) -> None:
        """Begin to save the logs of an app until its end; :meth:`finish` waits for that.

        Args:
            runner: The runner.
            app_handle: The app, which has started.
            replicas: Role and index of each replica.
        """
        self._savers += self._start(runner, app_handle, replicas, follow=True)

    def _start(
        self,
        runner: Any,
        app_handle: str,
        replicas: Sequence[Replica],
        follow: bool,
        warns: bool = True,
    ) -> list[LogSaver]:
        """Begin to save the logs of an app that has started.

        Args:
            runner: The runner.
            app_handle: The app.
            replicas: Role and index of each replica.
            follow: Whether to continue until the app has ended.
            warns: Whether to log a warning if a copy fails.

        Returns:
            The running copies, one for each sink.
        """
        savers = [LogSaver(runner, app_handle, replicas, s, follow, warns) for s in self.sinks]
        for saver in savers:
            saver.start()
        return savers

    def finish(self) -> None:
        """Wait for the copies of the ended apps; give up if no line is added for 30 seconds."""
        _finish(self._savers)

    @contextmanager
    def saving(
        self, runner: Any, app_handle: str, replicas: Callable[[], Sequence[Replica] | None]
    ) -> Iterator[None]:
        """Save the logs of an app, from the app's start until the end of the context.

        At the end of the context, the app should have ended; the rest of its logs is saved. After
        an exception, such as an interrupt, the rest is left to the next process.

        Args:
            runner: The runner.
            app_handle: The app.
            replicas: Returns role and index of each replica; None if the app has not started.
        """
        savers: list[LogSaver] = []
        is_over = threading.Event()

        def run() -> None:
            backoff = Backoff(
                0.0, first_pause=_FIRST_PAUSE, longest_pause=_LONGEST_PAUSE, sleep=is_over.wait
            )
            try:
                while True:
                    was_over = is_over.is_set()  # poll once more: the app may have started just now
                    started = replicas()
                    if started:
                        savers.extend(self._start(runner, app_handle, started, follow=True))
                    if savers or was_over:
                        break
                    backoff.pause()
            except Exception as e:  # an error of the copy must not affect the job
                logger.warning("the logs of %s are not saved: %s", app_handle, one_line(e))

        starter = threading.Thread(target=run, name="save-logs", daemon=True)
        starter.start()
        try:
            yield
        except BaseException:  # an interrupt; the app may continue
            is_over.set()
            starter.join(_INTERRUPTED_SECONDS)
            deadline = time.monotonic() + _INTERRUPTED_SECONDS
            for saver in savers:
                saver.wait(max(0.0, deadline - time.monotonic()))
                saver.stop()
            raise
        is_over.set()
        starter.join(SILENCE_SECONDS)
        _finish(savers)

    def save(self, runner: Any, app_handle: str, replicas: Sequence[Replica], follow: bool) -> None:
        """Save the logs of an app in all sinks, and log the result.

        Args:
            runner: The runner.
            app_handle: The app, which has started.
            replicas: Role and index of each replica.
            follow: Whether to continue until the app has ended.

        Raises:
            SinkError: A sink failed.
            BackendError: A log cannot be read.
        """
        savers = self._start(runner, app_handle, replicas, follow, warns=False)
        for saver in savers:
            while not saver.wait(0.5):  # a wait without a limit would delay Ctrl-C
                pass
            if saver.error is None:
                logger.info(
                    "%s: %d line%s added; the copy %s",
                    saver.sink,
                    saver.added,
                    "" if saver.added == 1 else "s",
                    "is complete" if saver.is_complete else "has what the app has written so far",
                )
        for saver in savers:
            if saver.error is not None:
                raise saver.error


def _finish(savers: Sequence[LogSaver], silence: float = SILENCE_SECONDS) -> None:
    """Wait for the copies of an ended app; give up if no line is added for some time.

    Args:
        savers: The running copies.
        silence: How long to wait for the next line, in seconds.
    """
    seen, seen_at = -1, time.monotonic()
    while not all(saver.wait(0.05) for saver in savers):
        added = sum(saver.added for saver in savers)
        if added != seen:
            seen, seen_at = added, time.monotonic()
        elif time.monotonic() - seen_at > silence:
            logger.warning(
                "the copy of the logs is incomplete: no line was added for %g s;"
                " 'torchx log --save' continues it",
                silence,
            )
            break
    for saver in savers:
        saver.stop()
