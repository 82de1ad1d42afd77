"""The driver of a sweep: submits queued elements, and records how they end."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_runner.events.api import log_event
from torchx_runner.scripts import check_scripts
from torchx_specs.errors import (
    BackendError,
    CapacityError,
    RequestError,
    TorchXError,
    one_line,
)
from torchx_specs.formats import serialize
from torchx_specs.model.handles import make_app_handle, parse_app_handle
from torchx_specs.model.status import AppState, is_terminal
from torchx_sweep.handles import find_apps, state_of
from torchx_sweep.limits import ON_THIS_MACHINE, Usage, excess, usage
from torchx_sweep.store import (
    AFTER_REASON,
    ElementRecord,
    ElementState,
    Store,
    StoreError,
    has_unfinished,
    queue_again,
)

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef, AppDryRunInfo
    from torchx_specs.model.status import AppStatus
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.schedulers import ListAppResponse
    from torchx_sweep.store import SweepRecord

logger = logging.getLogger(__name__)

# Pauses between two polls of the running apps, in seconds.
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 10.0
_LONGEST_LOCAL_PAUSE = 0.2
_GROWTH = 1.5
# The longest time until the driver notices a change that a client has made, in seconds.
_TICK = 0.5
# Pause between two polls of the app of --after, in seconds.
_AFTER_PAUSE = 2.0
# If more than this number of apps are running, the driver lists the apps of each scheduler in one
# request instead of querying each app. It never lists local apps.
_FEW_APPS = 16
# How long a new driver waits before it searches for the apps of interrupted submissions (seconds).
_SETTLE_SECONDS = 2.0
# How long a new driver waits for programs that a killed driver has started, in seconds. After that,
# the process id of the killed driver probably belongs to another program.
_PROGRAM_SECONDS = 600.0
# How long a submitted app may be missing from the scheduler's answers, in seconds.
_VISIBLE_SECONDS = 30.0
# How long an app on this machine may wait for its start if its submission was interrupted, in
# seconds. After that, the driver cancels the app, because nobody will start it.
_START_SECONDS = 30.0
# How many queued elements the driver reads at once; if the scheduler limits the running elements of
# arrays, the second number, which is also the largest number of elements of an array.
_FETCHED = 64
_LARGEST_ARRAY = 10_000
# How long a busy driver collects changes of elements, in seconds. Only the claim of an element
# must be written at once. After a SIGKILL, the next driver finds the other changes by polling.
_WRITE_SECONDS = 0.2
# How many times an element is submitted again after backend errors; the first and the longest
# pause before such an attempt, in seconds.
_BACKEND_RETRIES = 8
_BACKEND_PAUSE = 1.0
_LONGEST_BACKEND_PAUSE = 60.0
_LONGEST_REASON = 500
# The reason of an unfinished element whose submission a killed driver has interrupted. The
# scheduler may cancel the app of such an element, or never start it; see _cancel_unstarted().
_INTERRUPTED = "a driver of the sweep was killed while it submitted this element"
# How the note of a sweep begins while the state of an element is unknown.
_UNKNOWN = "the state of element "
# Pause after an error of the database, such as a full disk, in seconds.
_STORE_PAUSE = 2.0
# The states of an app that has not ended.
_UNFINISHED_STATES = (
    AppState.UNSUBMITTED,
    AppState.SUBMITTED,
    AppState.PENDING,
    AppState.RUNNING,
)


class Driver:
    """Submits and polls the elements of one sweep; the caller holds the lock of the sweep.

    Args:
        store: The database.
        sweep: The sweep.
        runner: Submits and polls the apps.
        previous: The process id of the previous driver of this sweep; 0 if there was none.
        clock: Function that returns a time in seconds.
        sleep: Function that waits for a number of seconds.
    """

    def __init__(
        self,
        store: Store,
        sweep: SweepRecord,
        runner: Runner,
        previous: int = 0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._sweep = sweep
        self._runner = runner
        self._previous = previous
        self._clock = clock
        self._sleep = sleep
        self._scheduler = runner.scheduler(sweep.scheduler)
        self._features = features = runner.features(sweep.scheduler)
        # How many elements the driver may submit by one request.
        self._largest = _LARGEST_ARRAY if features.arrays else 1
        # A scheduler that can watch apps answers quickly.
        self._longest_pause = _LONGEST_LOCAL_PAUSE if features.watch else _LONGEST_PAUSE
        self._running: dict[int, ElementRecord] = {}
        # Elements whose submission was interrupted. The app of such an element may exist.
        self._uncertain: dict[int, ElementRecord] = {}
        # Queued elements as the driver has read them. If a client then changes an element, the
        # claim of this element fails.
        self._queue: deque[tuple[ElementRecord, AppDef]] = deque()
        self._usages: dict[int, Usage] = {}
        self._changed: dict[int, ElementRecord] = {}
        # When the app of each element was recorded, by the clock.
        self._recorded: dict[int, float] = {}
        # The handles of the apps that the driver has cancelled.
        self._cancelled: set[str] = set()
        # The numbers of errors of the backend, by number of the element.
        self._errors: Counter[int] = Counter()
        # The pause after the next submission that fails, in seconds.
        self._backend_pause = _BACKEND_PAUSE
        self._written = 0.0
        self._pause = _FIRST_PAUSE
        self._next_poll = 0.0
        self._hold_until = 0.0
        self._program_deadline = 0.0
        self._next_after = 0.0 if sweep.after else math.inf
        # The options of the scheduler. None: the elements wait for the app of --after.
        self._cfg: Mapping[str, CfgVal] | None = None if sweep.after else sweep.cfg
        self._note = sweep.note

    def run(self) -> None:
        """Submit and poll elements until all have ended or the database was deleted."""
        self._recover()
        while not self._store.is_deleted():
            try:
                has_changed = self._step()
                if not has_changed or self._clock() - self._written > _WRITE_SECONDS:
                    self._flush()
                if not self._running and not self._uncertain and self._has_ended():
                    break
            except StoreError as e:
                # Raising the error would end this process and, with it, the local elements. The
                # changes are kept in memory until the database can be written.
                logger.warning("%s", e)
                self._sleep(_STORE_PAUSE)
                continue
            if has_changed:
                self._pause = _FIRST_PAUSE
            else:
                self._sleep(min(self._pause, _TICK))
                self._pause = min(self._pause * _GROWTH, self._longest_pause)
        else:  # no client can see the sweep any more
            logger.error(
                "the database of sweep %s was deleted, so its driver ends; elements that run on"
                " other machines continue",
                self._sweep.id,
            )

    def _has_ended(self) -> bool:
        self._flush()
        if has_unfinished(self._store.counts(self._sweep.id)):
            return False
        if not self._note.startswith(AFTER_REASON):
            self._set_note("")
        return True

    def _step(self) -> bool:
        """Poll and start elements once, and return True if an element has started or ended."""
        if self._store.is_cancelled(self._sweep.id):
            if self._store.elements(self._sweep.id, [ElementState.QUEUED], 1):
                # The driver queued these elements for a retry after the sweep was cancelled.
                self._store.cancel(self._sweep.id)
            self._cancel_running()
        if self._uncertain and self._clock() >= self._hold_until:
            self._resolve_uncertain()
        has_ended = False
        if self._clock() >= self._next_poll:
            began = self._clock()
            running = len(self._running)
            self._poll()
            has_ended = len(self._running) < running
            ended = self._clock()
            # At most a tenth of the time is spent on polls.
            self._next_poll = ended + max(self._pause, 9 * (ended - began))
        if self._clock() >= self._next_after:
            self._check_after()
        return self._start_queued() or has_ended

    # The following methods start elements.

    def _start_queued(self) -> bool:
        """Submit the next elements by one request, and return True if there are any."""
        if self._cfg is None or self._uncertain or self._clock() < self._hold_until:
            return False
        count, limit = self._choose()
        if not count:
            return False
        chosen = deque(self._queue.popleft() for _ in range(count))
        # The changes are written in the same transaction.
        claimed = self._store.claim(
            self._sweep.id, [element for element, _ in chosen], self._changed.values()
        )
        self._changed.clear()
        self._written = self._clock()
        chosen = deque(item for item in chosen if item[0].number in claimed)
        elements: deque[ElementRecord] = deque()
        name, session = self._sweep.scheduler, self._sweep.session
        began = 0.0

        def dry_runs() -> Iterator[AppDryRunInfo[Any]]:
            # Each dry run is made when the scheduler takes it, so that they need not be in memory
            # together.
            nonlocal began
            while chosen:
                element, app = chosen.popleft()  # a dry run has a copy of the app
                app.name, element.reason = element.submission, ""
                try:
                    info = self._runner.dryrun(app, name, self._cfg)
                    check_scripts(self._scheduler, [info])
                except Exception as e:
                    self._on_invalid(element, e)
                    continue
                elements.append(element)
                began = time.time()
                yield info

        try:
            with log_event("schedule_many", name, runcfg=self._cfg):
                for app_id in self._scheduler.app_arrays.submit(dry_runs(), limit):
                    self._on_submitted(
                        elements.popleft(), make_app_handle(name, session, app_id), began
                    )
            if elements or chosen:
                raise BackendError(f"{name} has returned too few ids of apps")
        except Exception as e:
            elements.extend(element for element, _ in chosen)
            if elements:
                self._on_error(elements, e)
        return True

    def _choose(self) -> tuple[int, int | None]:
        """Choose the elements of the next request.

        Returns:
            How many elements of the queue to submit; and how many of them the scheduler may run at
            the same time, None for all.
        """
        sweep = self._sweep
        # The scheduler limits each array separately, so the next array is only submitted if nothing
        # is running. All elements of an array need the same resources.
        is_array = self._largest > 1 and self._features.array_limit and not self._running
        if not self._queue:
            limit, needed = _LARGEST_ARRAY if is_array else _FETCHED, Usage()
            for element in self._store.elements(
                sweep.id, [ElementState.QUEUED], limit, with_apps=True
            ):
                app = serialize.from_json(element.app)
                element.app = ""
                if (own := usage(app)) != needed:
                    needed = own  # thousands of elements share one object
                self._usages[element.number] = needed
                self._queue.append((element, app))
        if self._queue and is_array:
            needs = [self._usages[element.number] for element, _ in self._queue]
            first = needs[0]
            alike = itertools.takewhile(lambda needed: needed == first, needs)
            rooms = [limit // first[name] for name, limit in sweep.limits.items() if first[name]]
            return sum(1 for _ in alike), max(1, int(min([sweep.max_parallel, *rooms])))
        used = sum((self._usages[number] for number in self._running), Usage())
        free = min(sweep.max_parallel - len(self._running), self._largest)
        count = 0
        for element, _ in itertools.islice(self._queue, max(0, free)):
            used += self._usages[element.number]
            if excess(used, sweep.limits):
                break
            count += 1
        return count, None

    def _on_invalid(self, element: ElementRecord, error: Exception) -> None:
        """End an element whose dry run failed.

        But if the machine of the scheduler cannot be reached, queue the element again.
        """
        reason = _reason_of(error)
        if isinstance(error, BackendError) and not isinstance(error, RequestError):
            self._requeue([element])
            self._hold_back(f"element {element.number} waits: {reason}")
        else:
            self._end(element, ElementState.FAILED, reason, may_retry=False)

    def _on_error(self, elements: deque[ElementRecord], error: Exception) -> None:
        """Queue or end elements whose submission failed, or look for their apps later.

        The kind of the error decides this.

        Args:
            elements: The elements that were not submitted; the error is about the first one.
            error: The error.
        """
        reason = _reason_of(error)
        if isinstance(error, CapacityError):
            self._requeue(elements)
            self._hold_back(f"a limit on your jobs holds the other elements back: {reason}")
        elif isinstance(error, TorchXError) and (
            isinstance(error, RequestError) or not isinstance(error, BackendError)
        ):
            self._end(elements.popleft(), ElementState.FAILED, reason, may_retry=False)
            # It is unknown whether the other elements have the same error, so they are submitted
            # one by one.
            self._largest = 1
            self._requeue(elements)
        else:
            for element in elements:
                self._errors[element.number] += 1
                element.reason = reason
                self._uncertain[element.number] = element
            more = f" and {len(elements) - 1} more elements" if len(elements) > 1 else ""
            self._hold_back(f"element {elements[0].number}{more} could not be submitted: {reason}")

    def _hold_back(self, note: str) -> None:
        """Pause the queue, longer after each consecutive error."""
        self._hold_until = self._clock() + self._backend_pause
        self._backend_pause = min(2 * self._backend_pause, _LONGEST_BACKEND_PAUSE)
        self._set_note(note)

    def _on_submitted(self, element: ElementRecord, handle: str, submitted: float) -> None:
        """Record the app of an element.

        Args:
            element: The element.
            handle: The app's handle.
            submitted: When the app was submitted, in seconds since the epoch. For an app that was
                submitted alone, this is the time before the request, because a short app may end
                before the request returns.
        """
        element.handle = handle
        element.state = ElementState.SUBMITTED
        element.submitted = submitted
        self._running[element.number] = self._changed[element.number] = element
        self._recorded[element.number] = self._clock()
        self._backend_pause = _BACKEND_PAUSE
        del self._errors[element.number]
        self._set_note("")

    def _check_after(self) -> None:
        """Release the queue if the app of ``--after`` has ended with the required outcome.

        If the app has ended with another outcome, cancel the sweep. If the app has not ended, and
        the backend supports dependencies, let the backend hold the elements.
        """
        from torchx_cli.launch.after import After

        self._next_after = self._clock() + _AFTER_PAUSE
        handle, required = self._sweep.after
        try:
            state = state_of(self._runner, handle)
            if state is not None and not is_terminal(state):
                self._hold_until_end(handle, state, required)
                return
        except Exception as e:
            self._set_note(f"waiting for {handle}, whose state is unknown: {_reason_of(e)}")
            return
        if After(handle, required).is_met(state):
            self._cfg, self._next_after = self._sweep.cfg, math.inf
            self._set_note("")
            return
        self._cfg = None
        outcome = "does not exist" if state is None else f"is {state.name}"
        reason = f"{AFTER_REASON}{handle}:{required}: this app {outcome}"
        self._store.cancel(self._sweep.id, reason)
        self._set_note(reason)

    def _hold_until_end(self, handle: str, state: AppState, required: str) -> None:
        """Let the backend hold the elements until the app of ``--after`` ends.

        If the backend cannot do this, the elements stay in the queue.
        """
        backend, _, app_id = parse_app_handle(handle)
        if self._cfg is None and backend == self._sweep.scheduler and self._features.dependencies:
            self._cfg = self._scheduler.with_dependency(self._sweep.cfg, app_id, required)
        if self._cfg is None:
            self._set_note(f"waiting for {handle}, which is {state.name}")

    # The following methods notice or cause the ends of elements.

    def _poll(self) -> None:
        listed = self._listed() if len(self._running) > _FEW_APPS else {}
        for element in list(self._running.values()):
            if self._clock() - self._written > _WRITE_SECONDS:
                # The queries of many apps take long, and clients should see the ends so far. After
                # an error, the changes stay in memory, and run() writes them later.
                with contextlib.suppress(StoreError):
                    self._flush()
            status: AppStatus | ListAppResponse | None = listed.get(element.handle)
            if status is None or not self._is_enough(element, status):
                try:
                    status = self._runner.status(element.handle)
                except Exception as e:
                    # If the machine cannot be reached, each query may take long, so this one was
                    # the last. But if only this app has a problem, the others must have their turn.
                    self._running[element.number] = self._running.pop(element.number)
                    if not self._note.startswith(_UNKNOWN):
                        self._set_note(
                            f"{_UNKNOWN}{element.number} ({element.handle}) is unknown:"
                            f" {_reason_of(e)}"
                        )
                    return
            if status is None:
                if self._age(element) > _VISIBLE_SECONDS:
                    self._end(element, ElementState.FAILED, "the app does not exist any more")
            elif is_terminal(status.state):
                self._end_as(element, status)
            else:
                is_running = status.state is AppState.RUNNING
                state = ElementState.RUNNING if is_running else ElementState.SUBMITTED
                if element.state is not state:
                    element.state = state
                    self._changed[element.number] = element
                self._cancel_unstarted(element, status.state)
        if self._note.startswith(_UNKNOWN):
            self._set_note("")

    def _is_enough(self, element: ElementRecord, app: AppStatus | ListAppResponse) -> bool:
        """Return True if a query would not tell more about an app than the scheduler's list."""
        if self._was_interrupted_here(element):
            return False
        if app.state is AppState.SUCCEEDED:
            return None not in (app.started, app.ended)
        if app.state is AppState.CANCELLED:
            return element.handle in self._cancelled
        return app.state in _UNFINISHED_STATES

    def _end_as(self, element: ElementRecord, status: AppStatus | ListAppResponse) -> None:
        """Record the end of an element whose app has ended with this status."""
        state = ElementState(status.state.name)
        reason = one_line(getattr(status, "message", "") or "")
        if state is ElementState.CANCELLED:
            reason = reason or "cancelled"
            # A killed driver may have left the app of another machine incomplete, so that its
            # scheduler has cancelled the app before its start.
            depends_on_driver = self._was_interrupted_here(element) or (
                element.reason == _INTERRUPTED and status.started is None
            )
            if depends_on_driver and not self._store.is_cancelled(self._sweep.id):
                state = ElementState.FAILED
                reason = f"the driver of the sweep was killed: {reason}"
        self._end(element, state, reason, times=(status.started, status.ended))

    def _age(self, element: ElementRecord) -> float:
        """Return the seconds since the app of an element was recorded."""
        return self._clock() - self._recorded[element.number]

    def _cancel_unstarted(self, element: ElementRecord, state: AppState) -> None:
        """Cancel an app on this machine if a killed driver has submitted but not started it.

        For example, the driver had created a Docker container, and was killed before it started
        this container.
        """
        if not self._was_interrupted_here(element) or state is not AppState.SUBMITTED:
            return
        if self._age(element) > _START_SECONDS:
            try:
                self._runner.cancel(element.handle)
            except Exception as e:
                self._set_note(f"{element.handle} could not be cancelled: {_reason_of(e)}")

    def _listed(self) -> Mapping[str, ListAppResponse]:
        """Return the apps in the scheduler's list, by their handles.

        The result is empty if the apps cannot be listed.
        """
        try:
            apps = self._runner.list(self._sweep.scheduler, self._sweep.cfg)
        except Exception as e:
            logger.info("the apps of %s cannot be listed: %s", self._sweep.scheduler, _reason_of(e))
            return {}
        return {app.app_handle: app for app in apps}

    def _was_interrupted_here(self, element: ElementRecord) -> bool:
        """Return True if a killed driver has interrupted a submission to this machine."""
        return element.reason == _INTERRUPTED and self._sweep.scheduler in ON_THIS_MACHINE

    def _end(
        self,
        element: ElementRecord,
        state: ElementState,
        reason: str,
        may_retry: bool = True,
        times: tuple[datetime | None, datetime | None] = (None, None),
    ) -> None:
        """Record the end of an element, or queue the element again for a retry.

        Args:
            element: The element.
            state: Its final state.
            reason: The reason of the state.
            may_retry: Whether a failed element may be retried.
            times: When the app started and ended, by the scheduler's clock; None if unknown.
        """
        number = element.number
        self._running.pop(number, None)
        self._usages.pop(number, None)
        self._recorded.pop(number, None)
        started, ended = times
        element.state, element.ended = state, _end_time(element, ended)
        if started is not None:
            # The elements of an array may run before the submission of the last one is recorded,
            # and the scheduler's clock may differ. So only the time between start and end counts.
            last = element.ended if ended is None else ended.timestamp()
            element.started = element.ended - max(last - started.timestamp(), 0.0)
        element.reason = reason[:_LONGEST_REASON]
        may_retry = may_retry and state is ElementState.FAILED
        if may_retry and element.retries < self._sweep.retries:
            queue_again(element)
            element.retries += 1
        self._changed[number] = element

    def _cancel_running(self) -> None:
        handles = {element.handle for element in self._running.values()} - self._cancelled
        if not handles:
            return
        try:
            self._runner.cancel_many(handles)
        except Exception as e:
            self._set_note(f"{len(handles)} apps could not be cancelled: {_reason_of(e)}")
            return
        self._cancelled |= handles

    # The following methods handle elements whose submission was interrupted.

    def _recover(self) -> None:
        """Take over the elements of a driver that was killed."""
        states = [ElementState.STARTING, ElementState.SUBMITTED, ElementState.RUNNING]
        for element in self._store.elements(self._sweep.id, states, with_apps=True):
            self._usages[element.number] = usage(serialize.from_json(element.app))
            # A killed driver has recorded the app soon after the submission.
            age = time.time() - (element.submitted or 0.0)
            self._recorded[element.number] = self._clock() - age
            if element.state is ElementState.STARTING:
                element.reason = _INTERRUPTED
                self._uncertain[element.number] = element
            else:
                self._running[element.number] = element
        # A request of the killed driver may still be on its way.
        self._hold_until = self._clock() + _SETTLE_SECONDS
        self._program_deadline = self._clock() + _PROGRAM_SECONDS

    def _requeue(self, elements: Iterable[ElementRecord]) -> None:
        """Queue elements whose submission had no effect; the submission ids stay the same."""
        for element in elements:
            element.state = ElementState.QUEUED
            self._changed[element.number] = element

    def _resolve_uncertain(self) -> None:
        """Look for the apps of interrupted submissions; queue or end elements without an app."""
        if self._clock() < self._program_deadline and _has_processes(self._previous):
            # A program that the killed driver has started, such as sbatch, may still submit an app.
            self._hold_until = self._clock() + _TICK
            self._set_note("waiting for a program that a killed driver had started")
            return
        try:
            names = {element.submission for element in self._uncertain.values()}
            found, is_complete = find_apps(
                self._runner, self._sweep.scheduler, self._sweep.cfg, names
            )
        except Exception as e:
            self._hold_until = self._clock() + _LONGEST_BACKEND_PAUSE / 4
            self._set_note(f"the apps of {self._sweep.scheduler} cannot be listed: {_reason_of(e)}")
            return
        for element in list(self._uncertain.values()):
            del self._uncertain[element.number]
            app = found.get(element.submission)
            if app is not None:
                submitted = getattr(app, "submitted", None)
                now = time.time()
                began = min(submitted.timestamp(), now) if submitted else now
                self._on_submitted(element, app.app_handle, began)
            elif not is_complete:
                self._end(
                    element,
                    ElementState.FAILED,
                    f"its submission was interrupted, and {self._sweep.scheduler} lists no names of"
                    " apps: look for its app before you rerun the element",
                    may_retry=False,
                )
            elif self._errors[element.number] > _BACKEND_RETRIES:
                self._end(element, ElementState.FAILED, element.reason, may_retry=False)
            else:
                self._requeue([element])
        self._flush()

    # The following methods write changes to the database.

    def _flush(self) -> None:
        if self._changed:
            self._store.update(self._sweep.id, self._changed.values())
            self._changed.clear()
        self._written = self._clock()

    def _set_note(self, note: str) -> None:
        if note == self._note:
            return
        if note:
            logger.warning("%s", note)
        with contextlib.suppress(StoreError):  # the sweep does not depend on its note
            self._store.set_note(self._sweep.id, note)
            self._note = note


def _has_processes(group: int) -> bool:
    """Return True if a process group exists; a driver's group has the driver's process id."""
    if not group or group == os.getpgrp():
        return False
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _end_time(element: ElementRecord, ended: datetime | None) -> float:
    """Return when an app ended, in seconds since the epoch.

    The result is neither before the submission nor in the future: a scheduler may round times to
    seconds, and its clock may differ from the clock of this machine.

    Args:
        element: The app's element.
        ended: The time that the scheduler has recorded; None if there is none.
    """
    now = time.time()
    if ended is None:
        return now
    return max(min(ended.timestamp(), now), element.submitted or 0.0)


def _reason_of(error: Any) -> str:
    """Return the message of an error as one line of limited length."""
    return one_line(error)[:_LONGEST_REASON]
