"""Sweeps on several schedulers: an element goes to the scheduler that starts it first.

An element is submitted to one scheduler at a time. If it waits in a queue while another scheduler
is free, the driver withdraws it (``Scheduler.withdraw``) and submits it to the free
scheduler. The withdrawal succeeds only if the app never starts, so the program of an element begins
once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import TorchXError
from torchx_specs.formats import serialize
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState
from torchx_sweep.drivers.driver import (
    INTERRUPTED,
    UNFINISHED_STATES,
    WAITING_STATES,
    Driver,
    reason_of,
)
from torchx_sweep.limits import Usage, sum_usage, usage
from torchx_sweep.schedulers import ON_THIS_MACHINE, scheduler_names
from torchx_sweep.search import find_apps
from torchx_sweep.store import ElementRecord, ElementState, Store, queue_again

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal
    from torchx_sweep.store import SweepRecord

# An element that waits at one queue is moved to another queue after this time, in seconds. The time
# doubles with each move, so that an element does not move back and forth.
_QUEUE_PAUSE = 30.0
# Pause after a withdrawal that failed because the scheduler did not answer, in seconds.
_WITHDRAW_PAUSE = 5.0
# The first and the longest pause after a scheduler has refused an element because of a limit on the
# user's jobs, in seconds.
_FIRST_REFUSAL_PAUSE = 1.0
_LONGEST_REFUSAL_PAUSE = 60.0
_FETCHED = 64
# The beginning of the reason of an element that is being withdrawn.
_MOVING = "moving to "


class FirstFreeDriver(Driver):
    """Submits the elements of a sweep on several schedulers.

    Before a withdrawal, the driver stores a reason that begins with :data:`_MOVING`. If the driver
    is killed, the next driver repeats the withdrawal, and does not record the element as cancelled.

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
        super().__init__(store, sweep, runner, previous, clock=clock, sleep=sleep)
        self._names = scheduler_names(sweep.scheduler)
        # The scheduler of each element that was chosen for submission or submitted.
        self._targets: dict[int, str] = {}
        self._apps: dict[int, dict[str, AppDef]] = {}
        # Since when each element waits in a queue, by the clock, and the number of times that each
        # element was moved.
        self._waiting: dict[int, float] = {}
        self._moves: dict[int, int] = {}
        # The new scheduler of each element that is being moved.
        self._destinations: dict[int, str] = {}
        self._moving: set[int] = set()
        self._next_move = 0.0
        # For each scheduler that has refused an element because of a limit: the number of refusals,
        # and the time of the next attempt by the clock.
        self._refused: dict[str, tuple[int, float]] = {}

    # The following methods choose and submit elements.

    def _read_app(self, text: str) -> AppDef:
        apps: dict[str, str] = json.loads(text)
        return serialize.from_json(apps[self._names[0]])

    def _backend_of(self, element: ElementRecord) -> tuple[str, Mapping[str, CfgVal]]:
        name = self._targets[element.number]
        options: Mapping[str, CfgVal] = self._sweep.cfg[name]
        return name, options

    def _choose(self) -> list[tuple[ElementRecord, AppDef]]:
        """Return the next queued elements that a scheduler accepts now, ordered by number."""
        sweep = self._sweep
        if not self._queue:
            for element, text in self._store.apps(sweep.id, [ElementState.QUEUED], _FETCHED):
                texts: dict[str, str] = json.loads(text)
                apps = {name: serialize.from_json(texts[name]) for name in self._names}
                self._apps[element.number] = apps
                app = apps[self._names[0]]
                self._queue.append((element, app, usage(app)))
        chosen: list[tuple[ElementRecord, AppDef]] = []
        while self._queue:
            element, _, needed = self._queue[0]
            if sweep.max_parallel and len(self._running) + len(chosen) >= sweep.max_parallel:
                break
            name = self._free_scheduler(needed, chosen)
            if name is None:
                break
            destination = self._destinations.pop(element.number, name)
            if name not in ON_THIS_MACHINE and destination not in ON_THIS_MACHINE:
                name = destination
            self._targets[element.number] = name
            self._usages[element.number] = needed
            chosen.append((element, self._apps.pop(element.number)[name]))
            self._queue.popleft()
        return chosen

    def _free_scheduler(
        self, needed: Usage, chosen: Sequence[tuple[ElementRecord, AppDef]] = ()
    ) -> str | None:
        """Return the scheduler for an element, or None if no scheduler accepts it now.

        If this machine has room for the element, return this machine's scheduler. Otherwise return
        the scheduler at which the fewest elements wait. Schedulers that have refused an element a
        short time ago are left out.

        Args:
            needed: The resources of the element.
            chosen: Elements that were already chosen, and are submitted at the same time.
        """
        numbers = {*self._running, *(element.number for element, _ in chosen)}
        now = self._clock()
        open_names = [n for n in self._names if self._refused.get(n, (0, 0.0))[1] <= now]
        for name in open_names:
            if name in ON_THIS_MACHINE and self._has_room(needed, numbers):
                return name
        queues = [name for name in open_names if name not in ON_THIS_MACHINE]
        waiting = [self._targets.get(n) for n in numbers if n in self._waiting]
        waiting += [self._targets.get(element.number) for element, _ in chosen]
        return min(queues, key=waiting.count, default=None)

    def _has_room(self, needed: Usage, numbers: Iterable[int]) -> bool:
        used = sum_usage(
            self._usages[number]
            for number in numbers
            if self._targets.get(number) in ON_THIS_MACHINE and number in self._usages
        )
        return not (used + needed).excess(self._sweep.limits)

    def _on_submitted(self, element: ElementRecord, handle: str, submitted: float) -> None:
        super()._on_submitted(element, handle, submitted)
        name = parse_app_handle(handle).scheduler_backend
        self._targets[element.number] = name
        self._refused.pop(name, None)
        if name not in ON_THIS_MACHINE:
            self._waiting[element.number] = self._clock()

    def _hold_back(self, elements: Sequence[ElementRecord], error: Exception) -> None:
        """Queue refused elements again, and pause their schedulers; other schedulers continue."""
        for element in elements:
            name = self._targets[element.number]
            count, _ = self._refused.get(name, (0, 0.0))
            pause = min(_FIRST_REFUSAL_PAUSE * 2**count, _LONGEST_REFUSAL_PAUSE)
            self._refused[name] = (count + 1, self._clock() + pause)
            self._set_note(f"{name} accepts no element at present: {reason_of(error)}")
            self._requeue(element)

    def _find(self, names: set[str]) -> tuple[dict[str, Any], bool]:
        found: dict[str, Any] = {}
        is_complete = True
        for name in self._names:
            apps, has_names = find_apps(self._runner, name, self._sweep.cfg[name], names)
            found.update(apps)
            is_complete = is_complete and has_names
        return found, is_complete

    # The following methods handle states of elements.

    def _listed(self) -> Mapping[str, Any]:
        listed: dict[str, Any] = {}
        by_handle = {element.handle: element for element in self._running.values()}
        for name in self._names:
            try:
                apps = self._runner.list(name, self._sweep.cfg[name])
            except TorchXError:
                continue  # _poll then queries the elements of this scheduler one by one
            for app in apps:
                element = by_handle.get(app.app_handle)
                if element is None:
                    continue
                listed[app.app_handle] = app
                if app.state in UNFINISHED_STATES:
                    self._on_unfinished(element, app.state)
        return listed

    def _on_unfinished(self, element: ElementRecord, state: AppState) -> None:
        if state not in WAITING_STATES:
            self._waiting.pop(element.number, None)

    def _is_ended_by_kill(self, element: ElementRecord, has_started: bool) -> bool:
        # An app that is being withdrawn was probably cancelled by its withdrawal; see _end().
        is_moving = element.number in self._moving
        return not is_moving and super()._is_ended_by_kill(element, has_started)

    def _end(
        self,
        element: ElementRecord,
        state: ElementState,
        reason: str,
        may_retry: bool = True,
        ended: datetime | None = None,
    ) -> None:
        if element.number in self._moving and state is ElementState.CANCELLED:
            return  # probably the withdrawal has cancelled the app; the withdrawal is repeated
        self._forget(element.number)
        super()._end(element, state, reason, may_retry, ended)

    def _forget(self, number: int) -> None:
        self._moving.discard(number)
        self._waiting.pop(number, None)
        self._targets.pop(number, None)

    def _recover(self) -> None:
        super()._recover()
        for number, element in self._running.items():
            name = parse_app_handle(element.handle).scheduler_backend
            self._targets[number] = name
            if element.reason.startswith(_MOVING):
                self._moving.add(number)
            if name not in ON_THIS_MACHINE:
                self._waiting[number] = self._clock()

    # The following methods move waiting elements to other schedulers.

    def _step(self) -> bool:
        has_changed = self._withdraw_moving()
        has_changed = super()._step() or has_changed
        return self._begin_move() or has_changed

    def _begin_move(self) -> bool:
        """Withdraw a waiting element that another scheduler can start, if no element is queued.

        Returns:
            True if the element was queued again.
        """
        if self._queue or self._moving or self._uncertain or not self._is_released:
            return False
        if self._store.is_cancelled(self._sweep.id):
            return False
        # The last elements are moved first: the others are likely to start earlier.
        for number in sorted(self._waiting, reverse=True):
            element = self._running.get(number)
            if element is None or (name := self._better_scheduler(number)) is None:
                continue
            element.reason = f"{_MOVING}{name}"
            if number in self._interrupted:
                element.reason += f"; {INTERRUPTED}"
            self._destinations[number] = name
            self._moving.add(number)
            self._store.update(self._sweep.id, [element])
            return self._withdraw_moving()
        return False

    def _better_scheduler(self, number: int) -> str | None:
        """Return the scheduler to which a waiting element should move; None if it should stay."""
        name = self._free_scheduler(self._usages[number])
        source = self._targets[number]
        if name is None or name == source:
            return None
        if name in ON_THIS_MACHINE:
            return name
        if name in (self._targets[other] for other in self._waiting):
            return None
        moves = self._moves.get(number, 0)
        waited = self._clock() - self._waiting[number]
        return name if waited > _QUEUE_PAUSE * 2**moves else None

    def _withdraw_moving(self) -> bool:
        """Withdraw the elements that are being moved; return True if one is queued again."""
        if self._clock() < self._next_move:
            return False
        has_changed = False
        for number in list(self._moving):
            element = self._running[number]
            name, _, app_id = parse_app_handle(element.handle)
            try:
                is_withdrawn = self._runner.scheduler(name).withdraw(app_id)
            except TorchXError as e:
                self._next_move = self._clock() + _WITHDRAW_PAUSE
                self._set_note(f"{element.handle} cannot be withdrawn yet: {reason_of(e)}")
                return has_changed
            self._forget(number)
            if not is_withdrawn:
                element.reason = INTERRUPTED if number in self._interrupted else ""
                self._destinations.pop(number, None)
                self._targets[number] = name
            else:
                del self._running[number]
                self._usages.pop(number, None)
                self._interrupted.discard(number)
                self._moves[number] = self._moves.get(number, 0) + 1
                queue_again(element)
                has_changed = True
            self._store.update(self._sweep.id, [element])
            self._changed.pop(number, None)
        return has_changed
