"""Watches apps, and yields each change of their states."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchx_cli.launch.reports import intervals
from torchx_runner.submissions.journal import find_submission
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)


class Change(NamedTuple):
    """An app whose state has changed, or that is seen for the first time.

    Attributes:
        handle: The app.
        name: Name of the app, or its id if the name is unknown.
        status: The status of the app; None if the scheduler does not know the app.
    """

    handle: str
    name: str
    status: AppStatus | None


#: Changes, the error that ended a thread, and None for each thread that has ended.
_Found = queue.SimpleQueue["Change | Exception | None"]


def watch_handles(runner: Runner, handles: Sequence[str], interval: float) -> Iterator[Change]:
    """Yield the changes of some apps until all of them have ended.

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
    running = len(groups)
    try:
        while running:
            item = found.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
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
        for pause in intervals(min(0.1, interval), interval):
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
                    found.put(Change(handle, _name(handle), status))
                if status is None or status.is_terminal():
                    del states[handle]
                else:
                    states[handle] = status.state
            if not states or stopped.wait(pause):
                break
    except Exception as e:  # the consumer's thread raises it
        found.put(e)
    finally:
        found.put(None)


def _name(handle: str) -> str:
    """Return the name of an app in the journal, or the id of an app that others submitted."""
    submission = find_submission(handle)
    return parse_app_handle(handle).app_id if submission is None else submission.name
