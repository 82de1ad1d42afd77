"""The driver of a sweep whose elements are child processes of the driver.

One thread starts the elements, supervises them and records how they end. The scheduler reports the
ends of the apps that this driver started. The driver polls only the elements of a killed driver,
and elements whose start failed after their app was recorded.

Before an element starts, the driver claims it by a transaction, which waits for the disk. So one
transaction claims many short elements, even if they cannot all start yet.
"""

from __future__ import annotations

import copy
import json
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import one_line
from torchx_specs.formats import serialize
from torchx_specs.model.handles import make_app_handle, parse_app_handle
from torchx_sweep.drivers.driver import STATES, WRITE_SECONDS, Driver
from torchx_sweep.limits import usage
from torchx_sweep.store import ElementRecord, StoreError

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_sweep.drivers.local_supervisor import AppEnds, LocalSupervisor
    from torchx_sweep.limits import Usage
    from torchx_sweep.store import Store, SweepRecord

# The largest number of elements that are claimed before there is room for them. The driver claims
# no more elements ahead than it has started in the last _RATE_SECONDS seconds.
_MOST_AHEAD = 64
_RATE_SECONDS = 1.0
# How long to wait for the end of an app before looking for changes that a client has made, in
# seconds.
_TICK = WRITE_SECONDS
# How often to read whether a client has cancelled the sweep, in seconds.
_LOOK_SECONDS = 0.1
# The largest number of batches. Elements that fit into none of these batches start one by one.
_MOST_BATCHES = 16


class LocalDriver(Driver):
    """Submits the elements of one sweep, and supervises their apps in the same thread.

    Args:
        store: The database.
        sweep: The sweep.
        runner: Submits the apps.
        previous: The process id of the previous driver of this sweep; 0 if there was none.
        supervisor: The scheduler of the sweep.
        ends: The result of ``supervisor.supervise_here()``, which reports the ends of the apps.
    """

    def __init__(
        self,
        store: Store,
        sweep: SweepRecord,
        runner: Runner,
        previous: int,
        supervisor: LocalSupervisor,
        ends: AppEnds,
    ) -> None:
        super().__init__(store, sweep, runner, previous)
        self._supervisor = supervisor
        self._ends = ends
        # One app of each shape. Apps of one shape differ only in names, arguments and variables.
        self._shapes: dict[str, tuple[AppDef, Usage]] = {}
        self._shape_of: dict[int, str] = {}
        # The batch for each shape and set of variable names; None if there can be no batch.
        self._batches: dict[tuple[str, ...], Any] = {}
        # The running elements whose ends are reported, by the ids of their apps.
        self._own: dict[str, ElementRecord] = {}
        self._is_starting = False
        # Numbers of elements in the queue that are already claimed. They come first in the queue.
        self._ahead: set[int] = set()
        self._next_look = 0.0
        self._was_cancelled = False
        self._starts: deque[float] = deque(maxlen=_MOST_AHEAD)

    def _must_write(self, has_changed: bool) -> bool:
        # Do not write early while nothing happens: a transaction would delay the next element.
        return time.monotonic() - self._written > WRITE_SECONDS

    def _has_ended(self) -> bool:
        # The inherited check is a transaction. Skip it while elements are queued: short elements
        # often end at the same time.
        return not self._queue and super()._has_ended()

    def _sleep(self, seconds: float) -> None:
        # Elements of a killed driver are polled after this pause. If there are none, the pause may
        # be longer, because the end of an app ends it.
        is_polling = self._adopted or self._uncertain
        deadline = time.monotonic() + (seconds if is_polling else max(seconds, _TICK))
        while not self._take_ends(deadline - time.monotonic()):
            if time.monotonic() >= deadline:
                return

    def _step(self) -> bool:
        has_ended = self._take_ends(0.0)
        return super()._step() or has_ended

    def _is_cancelled(self) -> bool:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self._was_cancelled = super()._is_cancelled()
        return self._was_cancelled

    def _take_ends(self, seconds: float) -> bool:
        """Supervise the apps, at most for ``seconds``, and return True if an app has ended."""
        ends = self._ends.wait(max(0.0, seconds))
        for end in ends:
            element = self._own.pop(end.app_id, None)
            if element is not None:
                self._end(element, STATES[end.state], one_line(end.msg))
        return bool(ends)

    def _polled(self) -> list[ElementRecord]:
        # No end is reported for elements of a killed driver, and for elements whose start failed
        # after their app was recorded.
        reported = {element.number for element in self._own.values()}
        return [e for number, e in self._running.items() if number not in reported]

    def _load(self, element: ElementRecord, text: str) -> tuple[AppDef, Usage]:
        data = json.loads(text)
        if len(data["roles"]) != 1:
            return super()._load(element, text)
        (role,) = data["roles"]
        # Convert only the first app of a shape: a conversion takes longer than starting a process.
        name, args, env = data.pop("name"), role.pop("args", []), role.pop("env", {})
        shape = str(data)
        if shape not in self._shapes:
            if len(self._shapes) >= _MOST_BATCHES:
                return super()._load(element, text)
            first = serialize.from_json(text)
            self._shapes[shape] = first, usage(first)
        first, needed = self._shapes[shape]
        app = copy.copy(first)
        app.name = name
        app.roles = [copy.copy(first.roles[0])]
        app.roles[0].args, app.roles[0].env = args, env
        self._shape_of[element.number] = shape
        return app, needed

    def _start(self, element: ElementRecord, app: AppDef) -> None:
        self._is_starting = True
        try:
            self._start_app(element, app)
        finally:
            self._is_starting = False

    def _start_app(self, element: ElementRecord, app: AppDef) -> None:
        shape = self._shape_of.pop(element.number, None)
        if shape is None:
            super()._start(element, app)
            return
        app.name = element.submission
        self._assign_gpus(element, app)
        key = (shape, *app.roles[0].env)
        if key not in self._batches:
            if len(self._batches) >= _MOST_BATCHES:
                super()._start(element, app)
                return
            if not self._open_batch(key, element, app):
                return
        batch = self._batches[key]
        began = time.time()
        try:
            app_id = None if batch is None else self._supervisor.start_in_batch(batch, app)
        except Exception as e:
            self._on_error([element], e)
            return
        if app_id is None:
            super()._start(element, app)
        else:
            sweep = self._sweep
            handle = make_app_handle(sweep.scheduler, sweep.session, app_id)
            self._on_submitted(element, handle, began)

    def _open_batch(self, key: tuple[str, ...], element: ElementRecord, app: AppDef) -> bool:
        """Open the batch of an element, and return False if the dry run of the element fails."""
        info = self._dryrun(element, app)
        if info is None:
            return False
        name = element.submission.rsplit("-", 2)[0]  # without the numbers of element and attempt
        try:
            batch = self._supervisor.open_batch(name, app, info)
        except Exception as e:
            self._on_error([element], e)
            return False
        self._batches[key] = batch
        return True

    def _claim(self, chosen: Sequence[tuple[ElementRecord, AppDef]]) -> set[int]:
        missing = [element for element, _ in chosen if element.number not in self._ahead]
        if missing:
            # Elements that are claimed ahead come first in the queue. One of the chosen elements is
            # not claimed, so no claimed element is left in the queue.
            next_ones = [e for e, _, _ in islice(self._queue, self._recent_starts())]
            try:
                claimed = self._write_claim([*missing, *next_ones])
            except StoreError:
                self._queue.clear()
                self._queue.extend(
                    (element, app, self._usages[element.number])
                    for element, app in chosen
                    if element.number in self._ahead
                )
                raise
            lost = {e.number for e in next_ones} - claimed
            self._ahead |= claimed
            self._queue = deque(item for item in self._queue if item[0].number not in lost)
        numbers = {element.number for element, _ in chosen} & self._ahead
        self._ahead -= numbers
        self._starts.extend([time.monotonic()] * len(numbers))
        return numbers

    def _recent_starts(self) -> int:
        oldest = time.monotonic() - _RATE_SECONDS
        return sum(1 for started in self._starts if started > oldest)

    def _on_submitted(self, element: ElementRecord, handle: str, submitted: float) -> None:
        super()._on_submitted(element, handle, submitted)
        if self._is_starting:
            self._own[parse_app_handle(handle).app_id] = element

    def _cancel_running(self) -> None:
        if self._ahead:
            for element, _, _ in self._queue:
                if element.number in self._ahead:
                    self._requeue(element)
            self._queue.clear()
            self._ahead.clear()
            self._flush()
            self._store.cancel(self._sweep.id)
        own = {
            app_id: element.number
            for app_id, element in self._own.items()
            if element.number not in self._cancelled
        }
        self._ends.cancel(own)
        self._cancelled.update(own.values())
        super()._cancel_running()
