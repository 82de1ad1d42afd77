"""Saves the logs of an app in all configured log sinks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torchx_cli.launch.polling import intervals
from torchx_cli.logs.identifier import LogSource
from torchx_cli.logs.replicas import replicas_now, started_replicas
from torchx_cli.logs.saved.saver import LogSaver
from torchx_cli.logs.saved.sinks import required_sinks
from torchx_specs.errors import one_line

if TYPE_CHECKING:
    from torchx_cli.logs.saved.sinks import ConfiguredSink
    from torchx_runner import Runner

logger = logging.getLogger(__name__)

#: How long to wait for the copies of an app that has ended, in seconds, if no line is added.
SILENCE_SECONDS = 30.0
# How long an interrupted command waits for its copies to stop, in seconds.
_INTERRUPTED_SECONDS = 2.0


def start_savers(
    runner: Runner,
    app_handle: str,
    sinks: Sequence[ConfiguredSink],
    follow: bool,
    warns: bool = True,
) -> list[LogSaver]:
    """Begin to save the logs of an app; do nothing if the app has not started.

    Args:
        runner: The runner.
        app_handle: The app.
        sinks: The sinks.
        follow: Whether to continue until the app has ended.
        warns: Whether to log a warning if a copy fails.

    Returns:
        The running copies, one for each sink; none if the app has not started.

    Raises:
        UnknownAppException: The app does not exist.
    """
    replicas = replicas_now(runner, LogSource(app_handle))
    if not replicas:
        return []
    savers = [LogSaver(runner, app_handle, replicas, sink, follow, warns) for sink in sinks]
    for saver in savers:
        saver.start()
    return savers


def finish_savers(savers: Sequence[LogSaver], silence: float = SILENCE_SECONDS) -> None:
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


def stop_savers(savers: Sequence[LogSaver], limit: float) -> None:
    """Stop the copies, including copies of apps that continue.

    Args:
        savers: The running copies.
        limit: How long to wait for copies that are about to end, in seconds.
    """
    deadline = time.monotonic() + limit
    for saver in savers:
        saver.wait(max(0.0, deadline - time.monotonic()))
        saver.stop()


@contextmanager
def saved_logs(runner: Runner, app_handle: str, sinks: Sequence[ConfiguredSink]) -> Iterator[None]:
    """Save the logs of an app, from the app's start until the end of the context.

    At the end of the context, the app should have ended; the rest of its logs is saved. After an
    exception, such as an interrupt, the rest is left to the next process.

    Args:
        runner: The runner.
        app_handle: The app.
        sinks: The sinks; nothing happens if there are none.
    """
    if not sinks:
        yield
        return
    savers: list[LogSaver] = []
    is_over = threading.Event()

    def run() -> None:
        try:
            for interval in intervals():
                was_over = is_over.is_set()  # poll once more: the app may have started just now
                savers.extend(start_savers(runner, app_handle, sinks, follow=True))
                if savers or was_over:
                    break
                is_over.wait(interval)
        except Exception as e:  # an error of the copy must not affect the job
            logger.warning("the logs of %s are not saved: %s", app_handle, one_line(e))

    starter = threading.Thread(target=run, name="save-logs", daemon=True)
    starter.start()
    try:
        yield
    except BaseException:  # an interrupt; the app may continue
        is_over.set()
        starter.join(_INTERRUPTED_SECONDS)
        stop_savers(savers, _INTERRUPTED_SECONDS)
        raise
    is_over.set()
    starter.join(SILENCE_SECONDS)
    finish_savers(savers)


def save_all(runner: Runner, app_handle: str, follow: bool) -> None:
    """Save the logs of an app in all configured sinks, and log the result.

    Args:
        runner: The runner.
        app_handle: The app.
        follow: Whether to wait for the start and the end of the app.

    Raises:
        RequestError: No log sink is configured.
        UnknownAppException: The app does not exist.
        SinkError: A sink failed.
        BackendError: A log cannot be read.
    """
    sinks = required_sinks()
    if follow:
        started_replicas(runner, LogSource(app_handle))
    savers = start_savers(runner, app_handle, sinks, follow, warns=False)
    if not savers:
        logger.info("%s has not started, so it has no logs to save", app_handle)
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
