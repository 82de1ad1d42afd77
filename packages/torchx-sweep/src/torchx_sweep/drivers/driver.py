"""The driver of a sweep: submits queued elements, and records how they end."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import (
    BackendError,
    CapacityError,
    RequestError,
    TorchXError,
    one_line,
)
from torchx_specs.formats import serialize
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, is_terminal
from torchx_sweep.limits import ON_THIS_MACHINE, Usage, usage
from torchx_sweep.search import find_apps
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
    from torchx_specs.options.run_options import CfgVal
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
# How many queued elements the driver reads at once; if it submits arrays, the second number, which
# is also the largest number of elements of an array.
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
# The end of the reason of a running element whose submission was interrupted.
_INTERRUPTED = "a driver of the sweep was killed while it submitted this element"
# Pause after an error of the database, such as a full disk, in seconds.
_STORE_PAUSE = 2.0
# The state of an element whose app has ended, by the state of the app.
_STATES = {
    AppState.SUCCEEDED: ElementState.SUCCEEDED,
    AppState.FAILED: ElementState.FAILED,
    AppState.CANCELLED: ElementState.CANCELLED,
}
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
        features = runner.features(sweep.scheduler)
        # Whether the scheduler submits many elements in one request, and whether one array may have
        # more elements than max_parallel.
        self._submits_arrays = bool(features.arrays)
        self._fills_arrays = bool(features.array_limit) or (
            sweep.max_parallel is None and not sweep.limits
        )
        # A scheduler that can watch apps answers quickly.
        self._longest_pause = _LONGEST_LOCAL_PAUSE if features.watch else _LONGEST_PAUSE
        self._running: dict[int, ElementRecord] = {}
        # Elements whose submission was interrupted. The app of such an element may exist.
        self._uncertain: dict[int, ElementRecord] = {}
        # Queued elements as the driver has read them. If a client then changes an element, the
        # claim of this element fails.
        self._queue: deque[tuple[ElementRecord, AppDef, Usage]] = deque()
        self._usages: dict[int, Usage] = {}
        self._changed: dict[int, ElementRecord] = {}
        # The elements whose submission a killed driver has interrupted. The scheduler may cancel
        # the app of such an element, or never start it; see _cancel_unstarted().
        self._interrupted: set[int] = set()
        # When the app of each element was recorded, by the clock.
        self._recorded: dict[int, float] = {}
        self._cancelled: set[int] = set()
        self._backend_errors: dict[int, int] = {}
        # Number of consecutive submissions that failed with a CapacityError.
        self._refusals = 0
        self._written = 0.0
        self._pause = _FIRST_PAUSE
        self._next_poll = 0.0
        self._hold_until = 0.0
        self._next_after = 0.0
        self._program_deadline = 0.0
        self._is_released = not sweep.after
        # Options that make the backend hold the elements until the app of --after ends. If this is
        # None, the driver holds the elements.
        self._dependent_cfg: Mapping[str, CfgVal] | None = None
        self._note = sweep.note

    def run(self) -> None:
        """Submit and poll elements until all have ended or the database was deleted."""
        self._recover()
        while not self._has_lost_store():
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

    def _has_lost_store(self) -> bool:
        """Return True and log an error if the database was deleted: no client can see the sweep."""
        if not self._store.is_deleted():
            return False
        logger.error(
            "the database of sweep %s was deleted, so its driver ends; elements that run on other"
            " machines continue",
            self._sweep.id,
        )
        return True

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
        if not self._is_released and self._clock() >= self._next_after:
            self._check_after()
        return self._start_queued() or has_ended

    # The following methods start elements.

    def _start_queued(self) -> bool:
        if self._uncertain or self._clock() < self._hold_until:
            return False
        if not self._is_released and self._dependent_cfg is None:
            return False
        chosen = self._choose()
        if not chosen:
            return False
        claimed = self._claim(chosen)
        chosen = [(element, app) for element, app in chosen if element.number in claimed]
        if self._submits_arrays:
            self._start_together(chosen)
            return True
        for element, app in chosen:
            if self._hold_until > self._clock():
                # The submission of an earlier element failed with an error of the backend.
                self._requeue(element)
                continue
            self._start(element, app)
            if self._clock() - self._written > _WRITE_SECONDS:
                # Ignore an error, because the other claimed elements must start. The changes stay
                # in memory, and run() writes them later.
                with contextlib.suppress(StoreError):
                    self._flush()
        return True

    def _claim(self, chosen: Sequence[tuple[ElementRecord, AppDef]]) -> set[int]:
        """Claim the elements to start next, and write all changes in the same transaction.

        Returns:
            The numbers of the claimed elements.

        Raises:
            StoreError: The database cannot be written; nothing was claimed.
        """
        elements = [element for element, _ in chosen]
        try:
            claimed = self._store.claim(self._sweep.id, elements, self._changed.values())
        except StoreError:
            self._queue.clear()
            raise
        self._changed.clear()
        self._written = self._clock()
        return claimed

    def _choose(self) -> list[tuple[ElementRecord, AppDef]]:
        """Return the next queued elements that fit the limits and max_parallel, by number."""
        sweep = self._sweep
        # The scheduler limits each array separately, so the next array is only submitted if nothing
        # is running. All elements of an array need the same resources.
        is_array = self._submits_arrays and self._fills_arrays and not self._running
        if not self._queue:
            limit = _LARGEST_ARRAY if is_array else _FETCHED
            for element, text in self._store.apps(sweep.id, [ElementState.QUEUED], limit):
                app = serialize.from_json(text)
                self._queue.append((element, app, usage(app)))
        chosen: list[tuple[ElementRecord, AppDef]] = []
        if not self._queue:
            return chosen
        used = sum((self._usages[number] for number in self._running), Usage())
        while self._queue and len(chosen) < _LARGEST_ARRAY:
            element, app, needed = self._queue[0]
            if is_array:
                if chosen and needed != self._usages[chosen[0][0].number]:
                    break
            else:
                count = len(self._running) + len(chosen)
                if sweep.max_parallel is not None and count >= sweep.max_parallel:
                    break
                if (used + needed).excess(sweep.limits):
                    break
                used += needed
            self._usages[element.number] = needed
            chosen.append((element, app))
            self._queue.popleft()
        return chosen

    def _start(self, element: ElementRecord, app: AppDef) -> None:
        info = self._dryrun(element, app)
        if info is None:
            return
        began = time.time()
        try:
            handle = self._runner.schedule(info)
        except Exception as e:
            self._on_error([element], e)
        else:
            self._on_submitted(element, handle, began)

    def _start_together(self, chosen: list[tuple[ElementRecord, AppDef]]) -> None:
        """Submit elements with one call of :meth:`Runner.schedule_many`, and empty the list."""
        elements: deque[ElementRecord] = deque()
        infos = []
        chosen.reverse()
        while chosen:
            element, app = chosen.pop()  # a dry run has a copy of the app
            info = self._dryrun(element, app)
            if info is not None:
                elements.append(element)
                infos.append(info)
        if not elements:
            return
        needed = self._usages[elements[0].number]
        free = self._free_slots(needed) if self._fills_arrays else None
        handles = self._runner.schedule_many(infos, free)
        began = time.time()
        try:
            for handle in handles:
                self._on_submitted(elements.popleft(), handle, began)
                began = time.time()
        except Exception as e:
            if elements:
                self._on_error(elements, e)

    def _free_slots(self, needed: Usage) -> int | None:
        """Return how many more elements with these needs may run; None means any number."""
        sweep = self._sweep
        used = sum((self._usages[number] for number in self._running), Usage())
        free = [
            (limit - getattr(used, name)) // getattr(needed, name)
            for name, limit in sweep.limits.items()
            if getattr(needed, name)
        ]
        if sweep.max_parallel is not None:
            free.append(sweep.max_parallel - len(self._running))
        return max(1, min(free)) if free else None

    def _dryrun(self, element: ElementRecord, app: AppDef) -> AppDryRunInfo[Any] | None:
        """Return the request for an element.

        If the dry run fails, end the element and return None. But if the machine of the scheduler
        cannot be reached, queue it again.
        """
        app.name = element.submission
        try:
            cfg = self._dependent_cfg or self._sweep.cfg
            return self._runner.dryrun(app, self._sweep.scheduler, cfg)
        except Exception as e:
            if isinstance(e, BackendError) and not isinstance(e, RequestError):
                self._hold_back([element], f"element {element.number} waits: {_reason_of(e)}")
            else:
                self._end(element, ElementState.FAILED, _reason_of(e), may_retry=False)
            return None

    def _on_error(self, elements: Iterable[ElementRecord], error: Exception) -> None:
        """Queue or end elements whose submission failed, or look for their apps later.

        The kind of the error decides this.

        Args:
            elements: The elements that were not submitted; the error is about the first one.
            error: The error.
        """
        if isinstance(error, CapacityError):
            note = f"a limit on your jobs holds the other elements back: {_reason_of(error)}"
            self._hold_back(list(elements), note)
        elif isinstance(error, TorchXError) and (
            isinstance(error, RequestError) or not isinstance(error, BackendError)
        ):
            first, *others = elements
            self._end(first, ElementState.FAILED, _reason_of(error), may_retry=False)
            # It is unknown whether the other elements have the same error, so they are submitted
            # one by one.
            self._submits_arrays = False
            for element in others:
                self._requeue(element)
        else:
            self._on_backend_error(list(elements), error)

    def _hold_back(self, elements: Sequence[ElementRecord], note: str) -> None:
        """Queue elements again that the scheduler did not get, and pause the queue."""
        pause = min(_BACKEND_PAUSE * 2**self._refusals, _LONGEST_BACKEND_PAUSE)
        self._refusals += 1
        self._hold_until = self._clock() + pause
        for element in elements:
            self._requeue(element)
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
        if element.number in self._interrupted:
            # This driver may be killed, too, before it sees that the app was cancelled.
            element.reason = _INTERRUPTED
        self._running[element.number] = self._changed[element.number] = element
        self._recorded[element.number] = self._clock()
        self._refusals = 0
        if self._backend_errors.pop(element.number, None) or self._note:
            self._set_note("")

    def _on_backend_error(self, elements: Sequence[ElementRecord], error: Exception) -> None:
        """Pause the queue, and mark the submissions as uncertain: they may have succeeded."""
        reason = _reason_of(error)
        errors = 0
        for element in elements:
            errors = self._backend_errors.get(element.number, 0) + 1
            self._backend_errors[element.number] = errors
            element.reason = reason
            self._uncertain[element.number] = element
        pause = min(_BACKEND_PAUSE * 2 ** (errors - 1), _LONGEST_BACKEND_PAUSE)
        self._hold_until = self._clock() + pause
        first, others = elements[0].number, len(elements) - 1
        more = f" and {others} more elements" if others else ""
        self._set_note(f"element {first}{more} could not be submitted: {reason}")

    def _check_after(self) -> None:
        """Release the queue if the app of ``--after`` has ended with the required outcome.

        If the app has ended with another outcome, cancel the sweep. If the app has not ended, and
        the backend supports dependencies, let the backend hold the elements.
        """
        from torchx_cli.launch.after import After
        from torchx_sweep.handles import state_of

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
        self._dependent_cfg = None
        if After(handle, required).is_met(state):
            self._is_released = True
            self._set_note("")
            return
        outcome = "does not exist" if state is None else f"is {state.name}"
        reason = f"{AFTER_REASON}{handle}:{required}: this app {outcome}"
        self._store.cancel(self._sweep.id, reason)
        self._set_note(reason)

    def _hold_until_end(self, handle: str, state: AppState, required: str) -> None:
        """Let the backend hold the elements until the app of ``--after`` ends.

        If the backend cannot do this, the elements stay in the queue.
        """
        backend, _, app_id = parse_app_handle(handle)
        can_hold = backend == self._sweep.scheduler and self._runner.features(backend).dependencies
        if self._dependent_cfg is None and can_hold:
            scheduler = self._runner.scheduler(backend)
            self._dependent_cfg = scheduler.with_dependency(self._sweep.cfg, app_id, required)
        if self._dependent_cfg is None:
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
            app = listed.get(element.handle)
            if app is not None and not self._was_interrupted_here(element):
                if app.state in _UNFINISHED_STATES:
                    self._set_unfinished(element, app.state)
                    continue
                # A query would only tell the reason, which is known.
                times = (getattr(app, "started", None), getattr(app, "ended", None))
                if app.state is AppState.CANCELLED and element.number in self._cancelled:
                    self._end(element, ElementState.CANCELLED, "cancelled", times=times)
                    continue
                if app.state is AppState.SUCCEEDED and None not in times:
                    self._end(element, ElementState.SUCCEEDED, "", times=times)
                    continue
            try:
                status = self._runner.status(element.handle)
            except Exception as e:
                self._set_note(f"the state of {element.handle} is unknown: {_reason_of(e)}")
                return
            if status is None:
                if self._age(element) > _VISIBLE_SECONDS:
                    self._end(element, ElementState.FAILED, "the app does not exist any more")
            elif status.state in _STATES:
                state, reason = _STATES[status.state], one_line(status.message or "")
                has_started = status.started is not None
                if state is ElementState.CANCELLED and self._is_ended_by_kill(element, has_started):
                    state = ElementState.FAILED
                    reason = reason or "its app was cancelled"
                    reason = f"the driver of the sweep was killed: {reason}"
                self._end(element, state, reason, times=(status.started, status.ended))
            else:
                self._set_unfinished(element, status.state)
                self._cancel_unstarted(element, status.state)

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

    def _set_unfinished(self, element: ElementRecord, app: AppState) -> None:
        """Record whether the app of an element runs, or waits for its scheduler."""
        state = ElementState.RUNNING if app is AppState.RUNNING else ElementState.SUBMITTED
        if element.state is not state:
            element.state = state
            self._changed[element.number] = element

    def _listed(self) -> Mapping[str, Any]:
        """Return the apps in the scheduler's list, by their handles.

        The result is empty if the apps cannot be listed.
        """
        try:
            apps = self._runner.list(self._sweep.scheduler, self._sweep.cfg)
        except Exception as e:
            logger.info("the apps of %s cannot be listed: %s", self._sweep.scheduler, _reason_of(e))
            return {}
        return {app.app_handle: app for app in apps}

    def _is_ended_by_kill(self, element: ElementRecord, has_started: bool) -> bool:
        """Return True if a cancelled app ended because a driver was killed.

        A killed driver may have left the app of another machine incomplete, so that its scheduler
        has cancelled it before its start.

        Args:
            element: The element, whose app is CANCELLED.
            has_started: Whether a replica of the app has started.
        """
        depends_on_driver = self._was_interrupted_here(element) or (
            element.number in self._interrupted and not has_started
        )
        return depends_on_driver and not self._store.is_cancelled(self._sweep.id)

    def _was_interrupted_here(self, element: ElementRecord) -> bool:
        """Return True if a killed driver has interrupted a submission to this machine."""
        if element.number not in self._interrupted:
            return False
        return parse_app_handle(element.handle).scheduler_backend in ON_THIS_MACHINE

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
        self._interrupted.discard(number)
        self._cancelled.discard(number)
        self._recorded.pop(number, None)
        # Remove the app: the runner would keep the AppDef of every element in memory.
        self._runner.forget(element.handle)
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
        handles = {
            number: element.handle
            for number, element in self._running.items()
            if number not in self._cancelled
        }
        if not handles:
            return
        try:
            self._runner.cancel_many(handles.values())
        except Exception as e:
            self._set_note(f"{len(handles)} apps could not be cancelled: {_reason_of(e)}")
            return
        self._cancelled.update(handles)

    # The following methods handle elements whose submission was interrupted.

    def _recover(self) -> None:
        """Take over the elements of a driver that was killed."""
        states = [ElementState.STARTING, ElementState.SUBMITTED, ElementState.RUNNING]
        for element, text in self._store.apps(self._sweep.id, states, -1):
            self._usages[element.number] = usage(serialize.from_json(text))
            is_running = element.state is not ElementState.STARTING
            (self._running if is_running else self._uncertain)[element.number] = element
            # A killed driver has recorded the app soon after the submission.
            age = time.time() - (element.submitted or 0.0)
            self._recorded[element.number] = self._clock() - age
            if not is_running or element.reason.endswith(_INTERRUPTED):
                self._interrupted.add(element.number)
        # A request of the killed driver may still be on its way.
        self._hold_until = self._clock() + _SETTLE_SECONDS
        self._program_deadline = self._clock() + _PROGRAM_SECONDS

    def _requeue(self, element: ElementRecord) -> None:
        """Queue an element whose submission had no effect; its submission id stays the same."""
        self._interrupted.discard(element.number)
        element.state = ElementState.QUEUED
        self._changed[element.number] = element

    def _resolve_uncertain(self) -> None:
        """Look for the apps of interrupted submissions; queue or end elements without an app."""
        is_patient = self._clock() < self._program_deadline
        if is_patient and _has_processes(self._previous):
            # A program that the killed driver has started, such as sbatch, may still submit an app.
            self._hold_until = self._clock() + _TICK
            self._set_note("waiting for a program that a killed driver had started")
            return
        try:
            names = {element.submission for element in self._uncertain.values()}
            sweep = self._sweep
            found, is_complete = find_apps(self._runner, sweep.scheduler, sweep.cfg, names)
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
            elif self._backend_errors.get(element.number, 0) > _BACKEND_RETRIES:
                self._end(element, ElementState.FAILED, element.reason, may_retry=False)
            else:
                self._requeue(element)
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
