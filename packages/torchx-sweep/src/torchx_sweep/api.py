"""Creates sweeps, and queries, cancels, deletes and reruns them."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx_cli.launch.after import read_after
from torchx_kit.names.ids import random_id
from torchx_specs.components.signature import read_signature
from torchx_specs.errors import RequestError, TorchXError, UnknownAppException, one_line
from torchx_specs.formats import serialize
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState
from torchx_sweep.drivers.process import ensure_driver, locked, remove_files
from torchx_sweep.elements import integer_parameters, kind_of, make_apps
from torchx_sweep.handles import find_sweep, handle_of, state_of, sweep_state
from torchx_sweep.limits import check_count, checked_limits, excess, machine_limits, usage
from torchx_sweep.parameters import (
    Axis,
    ParameterSet,
    combine,
    component_spelling,
    file_axis,
    rows_axis,
    shortened,
    text_axis,
    value_axis,
)
from torchx_sweep.store import (
    AFTER_REASON,
    UNFINISHED,
    ElementRecord,
    ElementState,
    Store,
    SweepRecord,
    has_unfinished,
)

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.workspace import Workspace

logger = logging.getLogger(__name__)

#: How many elements run at the same time unless the caller chooses another number.
DEFAULT_PARALLEL = 100
# The check of a sweep makes at most this many dry runs, each of which takes some milliseconds.
_MOST_KINDS = 1_000
# This machine runs at most this many elements of a sweep at the same time.
_MOST_LOCAL = 100
_LONGEST_NAME = 24
_POLL_SECONDS = (0.05, 2.0)

#: The values of each parameter of a grid or a zip.
Values = Mapping[str, Sequence[Any]]


@dataclass
class SweepStatus:
    """The status of a sweep.

    Args:
        handle: The sweep's handle.
        component: Name of the component.
        scheduler: Name of the scheduler.
        state: PENDING, RUNNING, SUCCEEDED, FAILED or CANCELLED.
        counts: How many elements are in each state; states without elements are missing.
        first_failed: The first elements that failed.
        note: Why the driver submits nothing at present, or how the app of ``--after`` has ended if
            the sweep was cancelled for this; otherwise empty.
    """

    handle: str
    component: str
    scheduler: str
    state: AppState
    counts: dict[ElementState, int]
    first_failed: list[ElementRecord]
    note: str

    @property
    def is_unfinished(self) -> bool:
        """Whether an element has not ended."""
        return has_unfinished(self.counts)


class SweepTimeoutError(TorchXError, TimeoutError):
    """The sweep did not end in time; ``status`` is its last known status."""

    exit_code = 1

    def __init__(self, timeout: float, status: SweepStatus) -> None:
        super().__init__(
            f"{status.handle} is {status.state.name} after {timeout:g} s; it continues"
            " (torchx sweep cancel ends it)"
        )
        self.status = status


@dataclass
class SweepPlan:
    """A sweep that was checked, but not submitted yet.

    Args:
        record: The sweep.
        parameter_sets: The parameters of each element.
        apps: The app of each element; its workspaces are not built.
    """

    record: SweepRecord
    parameter_sets: list[ParameterSet]
    apps: list[AppDef]


def sweep(
    runner: Runner,
    component: str,
    component_args: Sequence[str] = (),
    scheduler: str = "local_cwd",
    cfg: Mapping[str, CfgVal] | None = None,
    **options: Any,
) -> str:
    """Submit a component once for each set of parameters, and return the handle of the sweep.

    All elements are checked before the first one is submitted. A separate process, the driver,
    submits the elements, and continues after this process has ended.

    Args:
        runner: Finds the component, checks the elements, and builds their workspaces.
        component: The component's name.
        component_args: Arguments that all elements share, as on a command line.
        scheduler: Name of the scheduler, which must be installed.
        cfg: Options of the scheduler.
        options: The other parameters of :func:`plan`.

    Raises:
        RequestError: An argument or an element is invalid; the message lists the problems.
        BackendError: The sweep cannot be recorded, or its driver cannot be started.
    """
    return submit(runner, plan(runner, component, component_args, scheduler, cfg, **options))


def plan(
    runner: Runner,
    component: str,
    component_args: Sequence[str] = (),
    scheduler: str = "local_cwd",
    cfg: Mapping[str, CfgVal] | None = None,
    *,
    workspace: Workspace | str | None = None,
    grid: Values | Sequence[str] = (),
    zips: Sequence[Values | Sequence[str]] = (),
    rows: str | Sequence[Mapping[str, Any]] | None = None,
    sample: int | None = None,
    seed: int = 0,
    max_parallel: int | None = None,
    retries: int = 0,
    limits: Mapping[str, float] | None = None,
    after: str | None = None,
    confirmed: bool = False,
    program: str | None = None,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
) -> SweepPlan:
    """Check all elements of a sweep, without submitting or building anything.

    Args:
        runner: Finds the component, and makes dry runs.
        component: The component's name.
        component_args: Arguments that all elements share, as on a command line.
        scheduler: Name of the scheduler, which must be installed.
        cfg: Options of the scheduler.
        workspace: Replaces the workspace of the first role; None or empty changes nothing.
        grid: The values of each parameter; the elements have all combinations. Texts such as
            ``lr=1e-3,1e-4`` and, for parameters of type int, ``seed=0:8`` are accepted, too.
        zips: Groups of parameters that change together; each group has the form of ``grid``.
        rows: Sets of parameters, or the path of a file with one set in each row: CSV, or JSON lines
            (``.jsonl``).
        sample: How many combinations to choose at random; None means all.
        seed: Seed of the random choice that ``sample`` requests.
        max_parallel: How many elements may run at the same time; None means
            :data:`DEFAULT_PARALLEL`. More than 100 local elements are refused.
        retries: How many times a failed element is submitted again.
        limits: The largest sum of ``cpus``, ``gpus`` and ``memMB`` of running elements. If the
            apps run on this machine, as local apps do, the default is the machine's resources.
        after: ``HANDLE[:ok|any|failed]``: submit no element before this app or sweep has ended. If
            its outcome is not the required one (default: ``ok``), the new sweep is cancelled.
        confirmed: Whether more than 100,000 elements are intended.
        program: The script or command that ``component`` runs with the last arguments: it gets
            each parameter as an option, ``--lr VALUE``, or where its arguments have ``{lr}``. None
            if the parameters are those of the component.
        name: The name of the apps, which may have ``{lr}``, too; None keeps the component's.
        env: Variables of all roles; values may have ``{lr}``, too.

    Raises:
        RequestError: An argument or an element is invalid; the message lists the problems.
    """
    from torchx_runner import workspaces
    from torchx_runner.components import finder
    from torchx_runner.config import api as config
    from torchx_runner.installed_schedulers import InstalledSchedulers, unknown_scheduler

    scheduler, cfg = config.take_host(scheduler, cfg or {})
    installed = InstalledSchedulers()
    if scheduler not in installed:  # another process, the driver, must be able to load it
        raise unknown_scheduler(scheduler, installed)
    options = dict(cfg)
    can_detach = runner.scheduler_run_opts(scheduler).get("detach") is not None
    if can_detach:
        options["detach"] = False
    is_local = runner.lives_in_client(scheduler, options)
    if can_detach:
        options["detach"] = True  # the elements continue if the driver is killed
    parallel = _checked_parallel(max_parallel, is_local)
    check_count("--retries", retries, 0)
    if sample is not None:
        check_count("--sample", sample, 1)
    bounds = {**(machine_limits() if is_local else {}), **checked_limits(limits or {})}
    required = list(read_after(after)) if after else []
    found = finder.get_component(component)
    integers = integer_parameters(read_signature(found.fn)) if program is None else None
    spelling = component_spelling if program is None else str
    axes = _axes(grid, zips, rows, confirmed, integers, spelling)
    # An app that waits for another one is a sweep of one element, without parameters.
    is_single = not axes and after
    sets = [ParameterSet({}, component)] if is_single else combine(axes, sample, seed, confirmed)
    defaults = runner.component_defaults(component)
    apps = make_apps(
        found.fn, component_args, defaults, axes, sets, program=program, name=name, env=env
    )
    _check_sizes(apps, sets, bounds)
    if is_local and any(usage(app)["gpus"] for app in apps):
        options.setdefault("auto_set_cuda_visible_devices", True)
    for app in apps:
        workspaces.set_workspace(app.roles, workspace)
    _check_requests(runner, apps, sets, scheduler, options)
    record = SweepRecord(
        id=random_id(8),
        session=runner.name(),
        component=program or component,
        scheduler=scheduler,
        cfg=options,
        folder=os.getcwd(),
        created=time.time(),
        max_parallel=parallel,
        retries=retries,
        limits=bounds,
        after=required,
    )
    return SweepPlan(record, sets, apps)


def submit(runner: Runner, plan: SweepPlan) -> str:
    """Build the workspaces of a sweep, record it, start its driver, and return its handle.

    Args:
        runner: Builds the workspaces.
        plan: The sweep.

    Raises:
        RequestError: The app or sweep that ``after`` names does not exist.
        BackendError: The sweep cannot be recorded, or the driver cannot be started.
    """
    record = plan.record
    if record.after and state_of(runner, record.after[0]) is None:
        raise RequestError(
            f"--after {record.after[0]}: there is no such app or sweep; 'torchx list' and"
            " 'torchx sweep list' show the handles"
        )
    apps = _with_built_workspaces(runner, plan.apps, record.scheduler, record.cfg)
    with Store() as store:
        store.add(
            record,
            (
                (parameters.values, _submission(record, number, app), serialize.to_json(app))
                for number, (parameters, app) in enumerate(
                    zip(plan.parameter_sets, apps, strict=True)
                )
            ),
        )
        ensure_driver(store, record.id)
    return handle_of(record)


def status(handle: str, failures: int = 3) -> SweepStatus:
    """Return the status of a sweep; if its driver was killed, start another one.

    Args:
        handle: The sweep's handle.
        failures: How many failed elements to return.

    Raises:
        UnknownAppException: The sweep does not exist.
    """
    with _opened(handle) as (store, record):
        return _status(store, record, failures)


@contextmanager
def _opened(handle: str) -> Iterator[tuple[Store, SweepRecord]]:
    """Open the database for a sweep; in the end, start the sweep's driver unless it has one."""
    with Store() as store:
        record = find_sweep(store, handle)
        yield store, record
        ensure_driver(store, record.id)


def statuses() -> list[SweepStatus]:
    """Return the status of each sweep, the newest first."""
    if not Store.exists():
        return []
    with Store() as store:
        return [_status(store, record, 0) for record in store.sweeps()]


def wait(handle: str, timeout: float | None = None) -> SweepStatus:
    """Wait until all elements of a sweep have ended, and return its status.

    Args:
        handle: The sweep's handle.
        timeout: How long to wait, in seconds; None means without a limit.

    Raises:
        SweepTimeoutError: The timeout expired.
        UnknownAppException: The sweep does not exist.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    pause, longest = _POLL_SECONDS
    while True:
        found = status(handle)
        if not found.is_unfinished:
            return found
        remaining = pause if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            raise SweepTimeoutError(timeout or 0, found)
        time.sleep(min(pause, remaining))
        pause = min(pause * 1.5, longest)


def cancel(handle: str) -> None:
    """Cancel the elements of a sweep that have not ended, without waiting for their end."""
    with _opened(handle) as (store, record):
        store.cancel(record.id)


def delete(handle: str, runner: Runner) -> None:
    """Cancel a sweep, and delete its record and its apps.

    Args:
        handle: The sweep's handle.
        runner: Deletes the apps.
    """
    with Store() as store:
        record = find_sweep(store, handle)
        store.cancel(record.id)
        wait(handle)
        with locked(record.id, wait=True):
            delete_apps(
                runner,
                (
                    app_handle
                    for element in store.elements(record.id)
                    for app_handle in (*element.earlier, element.handle)
                    if app_handle
                ),
            )
            store.delete(record.id)
            remove_files(record.id)


def delete_apps(runner: Runner, handles: Iterable[str]) -> None:
    """Delete apps; some schedulers delete the elements of an array only together."""
    app_ids: dict[str, list[str]] = {}
    for handle in handles:
        name, _, app_id = parse_app_handle(handle)
        app_ids.setdefault(name, []).append(app_id)
    for name, ids in app_ids.items():
        runner.scheduler(name).app_arrays.delete(ids)


def prunable(older_than: float) -> list[str]:
    """Return the handles of sweeps that ended at least ``older_than`` seconds ago.

    Args:
        older_than: How long ago the last element of a sweep must have ended, in seconds.
    """
    if not Store.exists():
        return []
    latest = time.time() - older_than
    with Store() as store:
        return [
            handle_of(record)
            for record in store.sweeps()
            if not has_unfinished(store.counts(record.id))
            and max(store.last_end(record.id), record.created) <= latest
        ]


def rerun(
    handle: str, states: Sequence[ElementState] = (ElementState.FAILED, ElementState.CANCELLED)
) -> int:
    """Queue the elements in the given states for another attempt, and return their number.

    Raises:
        RequestError: A state is not final, so elements in this state have not ended.
    """
    for state in states:
        if state in UNFINISHED:
            raise RequestError(f"elements in state {state.value} have not ended")
    with _opened(handle) as (store, record):
        return store.requeue(record.id, states)


def results(handle: str, states: Sequence[ElementState] = ()) -> list[ElementRecord]:
    """Return the elements of a sweep, ordered by number.

    Args:
        handle: The sweep's handle.
        states: Only elements in one of these states; empty means all.
    """
    return recorded(handle, states)[1]


def recorded(
    handle: str, states: Sequence[ElementState] = (), limit: int = -1, **query: Any
) -> tuple[SweepRecord, list[ElementRecord]]:
    """Return the record of a sweep, and those of its elements that a query selects.

    Args:
        handle: The sweep's handle.
        states: Only elements in one of these states; empty means all.
        limit: At most this many; -1 means all.
        query: The other parameters of :meth:`.Store.elements`.
    """
    with _opened(handle) as (store, record):
        return record, store.elements(record.id, states, limit, **query)


def metrics(elements: Sequence[ElementRecord]) -> dict[int, dict[str, Any]]:
    """Return what elements have recorded in the configured trackers, by number of the element.

    If several trackers have recorded the same name, or the name is that of a parameter, the value's
    name becomes ``TRACKER.NAME``. A tracker that fails is skipped with a warning.

    Args:
        elements: The elements, from :func:`results`.
    """
    from torchx_kit.trackers.recorded import recorded as recorded_metrics
    from torchx_runner.default_tracker import readable_trackers
    from torchx_sweep.output.tables import reserved_columns

    submitted = [element for element in elements if element.handle]
    handles = [element.handle for element in submitted]
    found = recorded_metrics(handles, readable_trackers(), reserved_columns(elements))
    return {
        element.number: {name: metric.last for name, metric in values.items()}
        for element, values in zip(submitted, found, strict=True)
        if values
    }


def log_lines(
    handle: str, runner: Runner, numbers: Sequence[int] = (), states: Sequence[ElementState] = ()
) -> Iterator[tuple[int, str]]:
    """Yield pairs of an element's number and a line of its log.

    An element whose log cannot be read is skipped with a warning. An element that was not submitted
    has no lines.

    Args:
        handle: The sweep's handle.
        runner: Reads the logs.
        numbers: Only these elements; empty means all.
        states: Only elements in one of these states; empty means all.

    Raises:
        RequestError: The sweep has no element with one of the numbers in one of the states.
    """
    found = results(handle, states)
    known = {element.number for element in found}
    missing = [str(number) for number in numbers if number not in known]
    if missing:
        raise RequestError(f"{handle} has no such elements: {', '.join(missing)}")
    for element in found:
        if not element.handle or (numbers and element.number not in numbers):
            continue
        try:
            status = runner.status(element.handle)
            if status is None:
                raise UnknownAppException(element.handle)
            for role in status.roles:
                for replica in role.replicas:
                    for line in runner.log_lines(element.handle, role.role, replica.id):
                        yield element.number, line
        except TorchXError as e:
            logger.warning("element %d has no log: %s", element.number, e)


def _status(store: Store, record: SweepRecord, failures: int) -> SweepStatus:
    counts = store.counts(record.id)
    failed = store.elements(record.id, [ElementState.FAILED], failures) if failures else []
    is_shown = has_unfinished(counts) or record.note.startswith(AFTER_REASON)
    return SweepStatus(
        handle_of(record),
        record.component,
        record.scheduler,
        sweep_state(counts),
        counts,
        failed,
        record.note if is_shown else "",
    )


def _checked_parallel(given: int | None, is_local: bool) -> int:
    if given is None:
        return DEFAULT_PARALLEL
    check_count("--max-parallel", given, 1)
    if is_local and given > _MOST_LOCAL:
        raise RequestError(
            f"--max-parallel is {given}; this machine runs at most {_MOST_LOCAL} elements at the"
            " same time"
        )
    return given


def _axes(
    grid: Values | Sequence[str],
    zips: Sequence[Values | Sequence[str]],
    rows: str | Sequence[Mapping[str, Any]] | None,
    confirmed: bool,
    integers: Collection[str] | None,
    spelling: Callable[[str], str],
) -> list[Axis]:
    if isinstance(grid, str):
        grid = [grid]
    if isinstance(grid, Mapping):
        axes = [value_axis({name: values}, "grid") for name, values in grid.items()]
    else:
        axes = [text_axis([text], "--grid", integers, spelling) for text in grid]
    for group in zips:
        if isinstance(group, str):
            raise RequestError(f"zips has the text {group!r}; each item must be a list or a dict")
        if isinstance(group, Mapping):
            axes.append(value_axis(group, "zip"))
        else:
            axes.append(text_axis(group, "--zip", integers, spelling))
    if isinstance(rows, str):
        axes.append(file_axis(rows, confirmed, spelling))
    elif rows is not None:
        sets = [ParameterSet(dict(values or {}), f"rows[{i}]") for i, values in enumerate(rows)]
        axes.append(rows_axis(sets, "rows"))
    return axes


def _check_sizes(
    apps: Sequence[AppDef], sets: Sequence[ParameterSet], limits: Mapping[str, float]
) -> None:
    problems = []
    for number, (app, parameters) in enumerate(zip(apps, sets, strict=True)):
        needed = usage(app)
        name = excess(needed, limits)
        if name:
            problems.append(
                f"{parameters.origin}: element {number} needs {name}={needed[name]}, but the limit"
                f" is {limits[name]}; use a smaller resource or --limit {name}=N"
            )
    if problems:
        raise RequestError(shortened(problems))


def _check_requests(
    runner: Runner,
    apps: Sequence[AppDef],
    sets: Sequence[ParameterSet],
    scheduler: str,
    cfg: Mapping[str, CfgVal],
) -> None:
    """Make a dry run of one app of each kind; at most :data:`_MOST_KINDS` kinds are checked.

    The driver makes a dry run of each element before its submission.
    """
    from torchx_runner.scripts import check_scripts

    kinds: dict[str, int] = {}
    for number, app in enumerate(apps):
        if len(kinds) < _MOST_KINDS:
            kinds.setdefault(kind_of(app), number)
    problems = []
    for number in kinds.values():
        try:
            info = runner.dryrun(apps[number], scheduler, cfg)
            check_scripts(runner.scheduler(scheduler), [info])
        except TorchXError as e:
            if len(kinds) == 1:
                raise
            problems.append(f"{sets[number].origin}: {one_line(e)}")
    if problems:
        raise RequestError(shortened(problems))


def _with_built_workspaces(
    runner: Runner, apps: list[AppDef], scheduler: str, cfg: Mapping[str, CfgVal]
) -> list[AppDef]:
    """Build each distinct workspace once, and return apps that use the built images.

    Elements that start later thus run the files that the workspaces contain now.
    """
    from torchx_runner import workspaces

    distinct = {
        (role.image, str(role.workspace)): role
        for app in apps
        for role in app.roles
        if role.workspace
    }
    images: dict[Any, str] = {}
    for role in distinct.values():
        if role.workspace and (image := runner.build_workspace(role, scheduler, cfg)):
            images[role.image, role.workspace] = str(image)
    return [workspaces.pin_workspace_images(app, images) for app in apps] if images else apps


def _submission(record: SweepRecord, number: int, app: AppDef) -> str:
    """Return an element's first submission id. Every scheduler accepts it as the name of an app."""
    name = re.sub(r"[^a-z0-9]+", "-", app.name.lower())[:_LONGEST_NAME].strip("-") or "element"
    return f"{name if name[0].isalpha() else 'x' + name}-{record.id}-{number}-0"
