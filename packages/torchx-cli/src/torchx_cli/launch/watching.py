"""Watches apps, and yields each change of their states."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchx_cli.launch.polling import intervals
from torchx_cli.listing import list_apps
from torchx_runner.submissions.journal import find_submission
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

# The longest wait that a signal cannot interrupt, in seconds.
_SIGNAL_SECONDS = 0.5


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
    pollers = [_HandlePoller(runner, group, interval) for group in groups.values()]
    return _changes(pollers)


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


class _QueryError(Exception):
    """A query of one app has failed."""


class _Poller:
    """Queries apps in a thread; ``None`` in the queue means that the thread has ended."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.stopped = threading.Event()
        self._found: queue.SimpleQueue[Change | Exception | None] = queue.SimpleQueue()
        self._failing: set[str] = set()

    def start(self, found: queue.SimpleQueue[Change | Exception | None]) -> None:
        self._found = found
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def _run(self) -> None:
        try:
            self.poll()
        except Exception as e:  # the consumer's thread raises it
            self._found.put(e)
        finally:
            self._found.put(None)

    def poll(self) -> None:
        raise NotImplementedError

    def query(self, handle: str, known: AppState | None, name: str = "") -> AppStatus | None:
        """Query an app, and report its status unless it has the known state.

        Args:
            handle: The app.
            known: The state that was last reported; None if the app was not reported yet.
            name: The name of the app; if it is empty, the journal has the name.

        Returns:
            The status; None if the scheduler does not know the app.

        Raises:
            _QueryError: The query has failed, which is logged.
            RequestError: The query can never succeed.
        """
        try:
            status = self._runner.status(handle)
        except Exception as e:
            self.failed(handle, e)
            raise _QueryError from e
        self.answered(handle)
        if status is None or status.state != known:
            self._found.put(Change(handle, name or _name(handle), status))
        return status

    def failed(self, what: str, error: Exception) -> None:
        """Log the error of a query, unless the previous query failed, too.

        A RequestError is raised instead, because the next query would fail in the same way.
        """
        if isinstance(error, RequestError):
            raise error
        if what not in self._failing:
            self._failing.add(what)
            logger.warning("%s: %s; it is queried again", what, one_line(error))

    def answered(self, what: str) -> None:
        if what in self._failing:
            self._failing.remove(what)
            logger.info("%s answers again", what)


class _HandlePoller(_Poller):
    def __init__(self, runner: Runner, handles: Iterable[str], interval: float) -> None:
        super().__init__(runner)
        self._states: dict[str, AppState | None] = dict.fromkeys(handles)
        self._interval = interval

    def poll(self) -> None:
        for pause in intervals(min(0.1, self._interval), self._interval):
            for handle in list(self._states):
                self._query(handle)
            if not self._states or self.stopped.wait(pause):
                return

    def _query(self, handle: str) -> None:
        try:
            status = self.query(handle, self._states[handle])
        except _QueryError:
            return
        if status is None or status.is_terminal():
            del self._states[handle]
        else:
            self._states[handle] = status.state


class _SchedulerPoller(_Poller):
    def __init__(
        self, runner: Runner, scheduler: str, scheduler_args: Sequence[str], interval: float
    ) -> None:
        super().__init__(runner)
        self._scheduler = scheduler
        self._scheduler_args = scheduler_args
        self._interval = interval
        self._states: dict[str, AppState] = {}
        self._is_first = True
        self._names: dict[str, str] = {}

    def poll(self) -> None:
        while True:
            try:
                apps = list_apps(self._scheduler, self._scheduler_args)
            except Exception as e:
                self.failed(self._scheduler, e)
            else:
                self.answered(self._scheduler)
                listed = {app.app_handle: app.state for app in apps}
                self._names.update({app.app_handle: app.name for app in apps})
                self._compare(listed)
            if self.stopped.wait(self._interval):
                return

    def _compare(self, listed: dict[str, AppState]) -> None:
        if self._is_first:
            self._is_first = False
            self._states = {handle: s for handle, s in listed.items() if is_terminal(s)}
        for handle, state in listed.items():
            if self._states.get(handle) != state:
                self._query(handle)
        vanished = [h for h, s in self._states.items() if h not in listed and not is_terminal(s)]
        for handle in vanished:
            self._query(handle)

    def _query(self, handle: str) -> None:
        """Query an app of the list; its status has more details than the list, and is newer."""
        try:
            status = self.query(handle, self._states.get(handle), self._names.get(handle, ""))
        except _QueryError:
            return
        if status is None:
            self._states.pop(handle, None)
        else:
            self._states[handle] = status.state


def _name(handle: str) -> str:
    """Return the name of an app in the journal, or the id of an app that others submitted."""
    submission = find_submission(handle)
    return parse_app_handle(handle).app_id if submission is None else submission.name


def _changes(pollers: Sequence[_Poller]) -> Iterator[Change]:
    found: queue.SimpleQueue[Change | Exception | None] = queue.SimpleQueue()
    running = len(pollers)
    try:
        for poller in pollers:
            poller.start(found)
        while running:
            try:
                item = found.get(timeout=_SIGNAL_SECONDS)
            except queue.Empty:
                continue
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for poller in pollers:
            poller.stopped.set()
