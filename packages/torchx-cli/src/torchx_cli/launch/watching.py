"""Watches apps, and yields each change of their states."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from torchx_cli.launch.reports import intervals
from torchx_cli.listing import list_apps
from torchx_runner.submissions.journal import find_submission
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, is_terminal

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
    return _changes([_HandlePoller(runner, group, interval) for group in groups.values()])


def watch_scheduler(
    runner: Runner, scheduler: str, scheduler_args: Sequence[str], interval: float
) -> Iterator[Change]:
    """Yield the changes of all apps of a scheduler, without an end.

    Apps that had ended before the first query are not yielded.

    Args:
        runner: The runner.
        scheduler: Name of the scheduler.
        scheduler_args: The values of ``-cfg``.
        interval: The pause between two queries, in seconds.

    Raises:
        RequestError: An option of the scheduler is wrong.
    """
    return _changes([_SchedulerPoller(runner, scheduler, scheduler_args, interval)])


class _Poller(threading.Thread):
    """Queries apps in a thread; ``None`` in the queue means that the thread has ended.

    Args:
        runner: The runner.
        pauses: The pauses between two rounds of queries, in seconds.

    Attributes:
        found: Receives the changes, and the error that ends the thread.
        stopped: Ends the thread.
        states: The state of each app that was last reported; None if none was.
        names: The names of apps that the journal may not have.
    """

    def __init__(self, runner: Runner, pauses: Iterable[float]) -> None:
        super().__init__(name="watch", daemon=True)
        self.found: queue.SimpleQueue[Change | Exception | None] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self.states: dict[str, AppState | None] = {}
        self.names: dict[str, str] = {}
        self._runner = runner
        self._pauses = pauses
        self._failing: set[str] = set()

    def run(self) -> None:
        try:
            for pause in self._pauses:
                for handle in self.due():
                    self._query(handle)
                if self.has_ended() or self.stopped.wait(pause):
                    break
        except Exception as e:  # the consumer's thread raises it
            self.found.put(e)
        finally:
            self.found.put(None)

    def due(self) -> list[str]:
        """Return the apps to query."""
        raise NotImplementedError

    def has_ended(self) -> bool:
        """Return True if no app is to be queried any more."""
        return False

    @contextmanager
    def queries(self, what: str) -> Iterator[None]:
        """Return a context for a query; log its error, unless the previous query failed, too.

        A RequestError is raised instead, because the next query would fail in the same way.
        """
        try:
            yield
        except RequestError:
            raise
        except Exception as e:
            if what not in self._failing:
                self._failing.add(what)
                logger.warning("%s: %s; it is queried again", what, one_line(e))
        else:
            if what in self._failing:
                self._failing.remove(what)
                logger.info("%s answers again", what)

    def _query(self, handle: str) -> None:
        """Query an app, and report its status unless its state was reported before."""
        with self.queries(handle):
            status = self._runner.status(handle)
            if status is None or status.state != self.states.get(handle):
                self.found.put(Change(handle, self.names.get(handle) or _name(handle), status))
            if status is None:
                self.states.pop(handle, None)
            else:
                self.states[handle] = status.state


class _HandlePoller(_Poller):
    """Queries some apps until they have ended."""

    def __init__(self, runner: Runner, handles: Iterable[str], interval: float) -> None:
        super().__init__(runner, intervals(min(0.1, interval), interval))
        self.states.update(dict.fromkeys(handles))

    def due(self) -> list[str]:
        return [h for h, state in self.states.items() if state is None or not is_terminal(state)]

    def has_ended(self) -> bool:
        return not self.due()


class _SchedulerPoller(_Poller):
    """Lists the apps of a scheduler, and queries those whose states have changed.

    The status of an app has more details than the list, and is newer.
    """

    def __init__(
        self, runner: Runner, scheduler: str, scheduler_args: Sequence[str], interval: float
    ) -> None:
        super().__init__(runner, repeat(interval))
        self._scheduler = scheduler
        self._scheduler_args = scheduler_args
        self._is_first = True

    def due(self) -> list[str]:
        with self.queries(self._scheduler):
            apps = list_apps(self._scheduler, self._scheduler_args)
            listed = {app.app_handle: app.state for app in apps}
            self.names.update({app.app_handle: app.name for app in apps})
            if self._is_first:
                self._is_first = False
                self.states.update({h: state for h, state in listed.items() if is_terminal(state)})
            changed = [h for h, state in listed.items() if self.states.get(h) != state]
            return changed + [
                handle
                for handle, state in self.states.items()
                if handle not in listed and state is not None and not is_terminal(state)
            ]
        return []


def _name(handle: str) -> str:
    """Return the name of an app in the journal, or the id of an app that others submitted."""
    submission = find_submission(handle)
    return parse_app_handle(handle).app_id if submission is None else submission.name


def _changes(pollers: Sequence[_Poller]) -> Iterator[Change]:
    found: queue.SimpleQueue[Change | Exception | None] = queue.SimpleQueue()
    running = len(pollers)
    try:
        for poller in pollers:
            poller.found = found
            poller.start()
        while running:
            item = found.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for poller in pollers:
            poller.stopped.set()
