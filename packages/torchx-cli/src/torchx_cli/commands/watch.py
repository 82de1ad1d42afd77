"""The command ``torchx watch``."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from torchx_cli.arguments.options import (
    Command,
    duration_option,
    handles_argument,
    notify_option,
    output_option,
)
from torchx_cli.exit_codes import JOB_FAILED, fail
from torchx_cli.logs.copies import required_copies, save_logs
from torchx_cli.notifications import job_data, job_ended, open_deliveries
from torchx_cli.output.printing import format_time, rfc3339, write_result
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, AppStatus, is_started

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.plugins.factories import Deliveries, LogCopies

logger = logging.getLogger(__name__)

_INTERVAL = 10.0
# The first pause between two queries, in seconds, and the factor by which pauses grow.
_FIRST_PAUSE, _GROWTH = 0.1, 1.5
_STOP_SECONDS = 5.0


@click.command("watch", cls=Command)
@notify_option(
    "Send a notification when an app ends, as in [notifier:NAME] of .torchxconfig; may be repeated."
)
@click.option("--save", is_flag=True, help="Save the logs in the sinks [log_sink:NAME].")
@duration_option("--interval", help=f"Query the apps this often.  [default: {_INTERVAL:g}s]")
@output_option
@handles_argument(required=True)
def command(
    notify: tuple[str, ...],
    save: bool,
    interval: float | None,
    output_format: str,
    app_handles: tuple[str, ...],
) -> None:
    """Show when apps change their state, and notify when they end.

    The command ends when all of these apps have ended. The apps continue if it is interrupted, but
    nothing is sent or saved any more.

    \b
    Exit codes: 0 if all apps succeeded; 1 if one failed, was cancelled or does not exist.
    """
    seconds = _INTERVAL if interval is None else max(interval, 0.1)
    copies = required_copies() if save else None
    deliveries = open_deliveries(notify) if notify else None
    with open_runner() as runner:
        changes = watch_handles(runner, app_handles, seconds)
        limit: float | None = _STOP_SECONDS
        try:
            has_failed = _show(runner, changes, output_format, deliveries, copies)
            limit = None
        finally:
            if deliveries is not None:
                deliveries.finish(limit)
        if copies is not None:
            copies.finish()
    if has_failed:
        fail(JOB_FAILED)


def _show(
    runner: Runner,
    changes: Iterable[tuple[str, AppStatus | None]],
    output_format: str,
    deliveries: Deliveries | None,
    copies: LogCopies | None,
) -> bool:
    """Print each change, save logs and notify; return whether an app did not succeed."""
    has_failed = False
    saved: set[str] = set()
    for handle, status in changes:
        _write(job_data(handle, status), output_format)
        is_new = status is not None and is_started(status.state) and handle not in saved
        if copies is not None and is_new:
            saved.add(handle)
            save_logs(runner, handle, copies)
        if status is None or status.is_terminal():
            has_failed |= status is None or status.state != AppState.SUCCEEDED
            if deliveries is not None:
                deliveries.send(job_ended(handle, status))
    return has_failed


def _write(data: dict[str, Any], output_format: str) -> None:
    now = datetime.now(timezone.utc)
    text = one_line(f"{format_time(now)} {data['handle']} {data['name']} {data['summary']}")
    write_result({"time": rfc3339(now), **data}, text, output_format)
    sys.stdout.flush()


# -- changes of states


#: The handle and the status of an app, or the error that ended a thread.
_Found = queue.SimpleQueue["tuple[str, AppStatus | None] | Exception"]


def watch_handles(
    runner: Runner, handles: Sequence[str], interval: float
) -> Iterator[tuple[str, AppStatus | None]]:
    """Yield the handle and the status of each app, and again when its state changes.

    The status is None if the scheduler does not know the app. The iterator ends with the last app.

    Each scheduler is queried in a thread of its own, so that a scheduler that hangs does not delay
    the changes of others. If the query of an app fails, one warning is logged, and the app is
    queried again.

    Args:
        runner: The runner.
        handles: The apps.
        interval: The longest pause between two queries, in seconds.

    Raises:
        RequestError: A query can never succeed, for example because the scheduler is unknown.
    """
    groups: dict[str, list[str]] = {}
    for handle in handles:
        groups.setdefault(parse_app_handle(handle).scheduler_backend, []).append(handle)
    found: _Found = queue.SimpleQueue()
    stopped = threading.Event()
    for group in groups.values():
        arguments = (runner, group, interval, found, stopped)
        threading.Thread(target=_poll, args=arguments, name="watch", daemon=True).start()
    running = set(handles)
    try:
        while running:
            item = found.get()
            if isinstance(item, Exception):
                raise item
            handle, status = item
            if status is None or status.is_terminal():
                running.discard(handle)
            yield handle, status
    finally:
        stopped.set()


def _poll(
    runner: Runner,
    handles: Iterable[str],
    interval: float,
    found: _Found,
    stopped: threading.Event,
) -> None:
    """Query apps until they have ended, and report each new state."""
    states: dict[str, AppState | None] = dict.fromkeys(handles)
    failing: set[str] = set()
    try:
        pause = 0.0
        while states and not stopped.wait(pause):
            for handle, before in list(states.items()):
                try:
                    status = runner.status(handle)
                except RequestError:
                    raise
                except Exception as e:
                    if handle not in failing:
                        failing.add(handle)
                        logger.warning("%s: %s; it is queried again", handle, one_line(e))
                    continue
                if handle in failing:
                    failing.remove(handle)
                    logger.info("%s answers again", handle)
                if status is None or status.state != before:
                    found.put((handle, status))
                if status is None or status.is_terminal():
                    del states[handle]
                else:
                    states[handle] = status.state
            pause = min(max(_FIRST_PAUSE, pause * _GROWTH), interval)
    except Exception as e:  # the consumer's thread raises it
        found.put(e)
