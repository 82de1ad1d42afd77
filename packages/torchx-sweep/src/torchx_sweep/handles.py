"""Handles of sweeps, ``sweep://SESSION/ID``, and apps that are known by their names only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from torchx_runner.submissions.journal import numbered_submission
from torchx_specs.errors import RequestError, UnknownAppException
from torchx_specs.model.handles import make_app_handle, parse_app_handle
from torchx_specs.model.status import AppState
from torchx_sweep.store import ElementState, Store, SweepRecord, has_unfinished

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.schedulers import ListAppResponse

SCHEME = "sweep"

_MAX_CANDIDATES = 10


def handle_of(sweep: SweepRecord) -> str:
    """Return the handle of a sweep."""
    return make_app_handle(SCHEME, sweep.session, sweep.id)


def find_sweep(store: Store, handle: str) -> SweepRecord:
    """Return the sweep with this handle or this id.

    Raises:
        RequestError: The handle is malformed, or belongs to an app.
        UnknownAppException: The sweep does not exist.
    """
    sweep_id = handle
    if "://" in handle:
        scheme, _, sweep_id = parse_app_handle(handle)
        if scheme != SCHEME:
            raise RequestError(
                f"'{handle}' is not the handle of a sweep, such as {SCHEME}://torchx/ID;"
                " 'torchx sweep list' shows all sweeps"
            )
    found = store.sweep(sweep_id)
    if found is None:
        raise UnknownAppException(handle)
    return found


def complete_handle(text: str) -> str:
    """Return the handle of the sweep that a short name means, or the text if no sweep matches.

    Args:
        text: A handle or an id; ``@1`` for this user's last submission, ``@2`` for the one before
            it; the first characters of an id, with or without ``sweep://``; or a component, for its
            newest sweep.

    Raises:
        RequestError: Several ids begin with the given characters.
    """
    submission = numbered_submission(text)
    if submission is not None:
        return submission.handle
    start = text.removeprefix(f"{SCHEME}://")
    if not start or "/" in start or not Store.exists():
        return text
    with Store() as store:
        sweeps = store.sweeps()
    exact = [sweep for sweep in sweeps if sweep.id == start]
    if exact:
        return handle_of(exact[0])
    found = [sweep for sweep in sweeps if sweep.id.startswith(start)]
    if len(found) > 1:
        candidates = ", ".join(handle_of(sweep) for sweep in found[:_MAX_CANDIDATES])
        raise RequestError(f"'{text}' matches {len(found)} sweeps: {candidates}; give a handle")
    found = found or [sweep for sweep in sweeps if sweep.component == text]
    return handle_of(found[0]) if found else text


def state_of(runner: Runner, handle: str) -> AppState | None:
    """Return the state of an app or a sweep, or None if it does not exist."""
    if not handle.startswith(f"{SCHEME}://"):
        status = runner.status(handle)
        return None if status is None else status.state
    with Store() as store:
        try:
            sweep = find_sweep(store, handle)
        except UnknownAppException:
            return None
        return sweep_state(store.counts(sweep.id))


def sweep_state(counts: dict[ElementState, int]) -> AppState:
    """Return the state of a sweep whose elements have these states.

    A sweep is PENDING if all its elements are queued. Otherwise it is RUNNING until the last
    element ends. It is then FAILED if an element failed, else CANCELLED if one was cancelled, else
    SUCCEEDED.
    """
    if has_unfinished(counts):
        return AppState.PENDING if set(counts) == {ElementState.QUEUED} else AppState.RUNNING
    if ElementState.FAILED in counts:
        return AppState.FAILED
    return AppState.CANCELLED if ElementState.CANCELLED in counts else AppState.SUCCEEDED


def find_apps(
    runner: Runner, scheduler: str, cfg: Mapping[str, CfgVal], names: Collection[str]
) -> tuple[dict[str, ListAppResponse], bool]:
    """Return the apps of interrupted submissions by name, and whether the result is complete.

    The result counts as incomplete if the scheduler lists apps, but gives no name of an app, and no
    app was found by its id.

    Args:
        runner: Lists the apps.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler.
        names: The names, each of which belongs to one app at most.

    Raises:
        TorchXError: The apps cannot be listed.
    """
    apps = runner.list(scheduler, cfg)
    found: dict[str, ListAppResponse] = {}
    for app in apps:
        if app.name in names:
            found[app.name] = app
            continue
        # An id may have a queue or namespace before the name: "queue:name-x7f".
        app_id = app.app_id.rpartition(":")[2]
        for end in (i for i, character in enumerate(f"{app_id}-") if character == "-"):
            if app_id[:end] in names:
                found[app_id[:end]] = app
    return found, bool(found) or not apps or any(app.name for app in apps)
