"""Parses log identifiers, and selects the replicas that they name once the app has started."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from torchx_cli.launch.reports import StateChanges
from torchx_cli.runner_context import existing, is_double
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.handles import make_app_handle
from torchx_specs.model.status import AppState, is_started

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef

FORMAT = "SCHEDULER://[SESSION_NAME]/APP_ID[/ROLE_NAME[/REPLICA_IDS,...]]"

# The longest time between two polls of an app that has not started, in seconds.
_POLL_SECONDS = 2.0
_MAX_SELECTED = 1_000_000
_MAX_DIGITS = 9

# Compiled on first use: `torchx run` imports this module without parsing an identifier.
_IDENTIFIER = (
    r"(?P<scheduler>[^:/\s]+)://(?P<session>[^/]*)/(?P<app>[^/]+)"
    r"(/(?P<role>[^/]+)(/(?P<ids>\d+(-\d+)?(,\d+(-\d+)?)*),?)?)?/?\Z"
)


class LogSource(NamedTuple):
    """The app, role and replicas that a log identifier selects.

    Attributes:
        app_handle: The app.
        role: One of its roles; None selects all roles.
        replicas: Indices of the role's replicas; None selects all replicas.
    """

    app_handle: str
    role: str | None = None
    replicas: tuple[int, ...] | None = None


def parse_identifier(identifier: str) -> LogSource:
    """Return the app, role and replicas that a log identifier selects.

    >>> parse_identifier("k8s://torchx/ns:train-x1/trainer/0,2-4")
    LogSource(app_handle='k8s://torchx/ns:train-x1', role='trainer', replicas=(0, 2, 3, 4))

    Raises:
        RequestError: The text does not have the form of a log identifier, an index has more than 9
            digits, a range of replicas is empty, or the ranges contain more than a million
            replicas.
    """
    found = re.match(_IDENTIFIER, identifier)
    if found is None:
        raise RequestError(f"'{identifier:.200}' is not of the form {FORMAT}")
    handle = make_app_handle(found["scheduler"], found["session"], found["app"])
    return LogSource(handle, found["role"], _indices(found["ids"]) if found["ids"] else None)


def _indices(text: str) -> tuple[int, ...]:
    """Return the distinct indices of a list such as ``0,2-4``, in the given order."""
    ranges = []
    for item in filter(None, text.split(",")):
        first, _, last = item.partition("-")
        last = last or first
        if max(len(first), len(last)) > _MAX_DIGITS:
            raise RequestError(f"replica '{item:.40}': an index has at most {_MAX_DIGITS} digits")
        selected = range(int(first), int(last) + 1)
        if not selected:
            raise RequestError(f"replicas '{item}': the first index is greater than the last one")
        ranges.append(selected)
    if sum(map(len, ranges)) > _MAX_SELECTED:
        raise RequestError(
            f"replicas '{text:.40}': the ranges contain more than {_MAX_SELECTED:,} replicas; leave"
            " the replicas out to select all of the role"
        )
    return tuple(dict.fromkeys(chain.from_iterable(ranges)))


def replicas_now(
    runner: Runner,
    source: LogSource,
    *,
    only_failed: bool = False,
) -> list[tuple[str, int]] | None:
    """Return the selected replicas as role and index now; None if the app has not started yet.

    Args:
        runner: The runner.
        source: The app, role and replicas.
        only_failed: Whether to return only the replicas that have failed.

    Raises:
        RequestError: The app has no such role or replica.
        UnknownAppException: The app does not exist.
    """
    if source.role is not None and source.replicas is not None and is_double(runner):
        # A test double may never report that its app has started, so do not wait for that.
        return [(source.role, index) for index in source.replicas]
    status = existing(runner.status(source.app_handle), source.app_handle)
    if not is_started(status.state):
        return None
    replicas = described_replicas(runner, source)
    if not only_failed:
        return replicas
    failed = {
        (role.role, replica.id)
        for role in status.roles
        for replica in role.replicas
        if replica.state == AppState.FAILED
    }
    return [replica for replica in replicas if replica in failed]


def started_replicas(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    """Wait until an app has started, and return the selected replicas as role and index.

    The app's states are logged during the wait.

    Raises:
        RequestError: The app has no such role or replica.
        UnknownAppException: The app does not exist.
    """
    changes = StateChanges()
    while (replicas := replicas_now(runner, source)) is None:
        runner.wait(
            source.app_handle,
            wait_interval=_POLL_SECONDS,
            until=AppState.RUNNING,
            observe=changes.observe,
        )
    return replicas


def described_replicas(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    """Return the selected replicas as role and index, whether or not the app has started.

    Raises:
        RequestError: See :func:`selected_replicas`.
        UnknownAppException: The app does not exist.
    """
    app = existing(runner.describe(source.app_handle), source.app_handle)
    return selected_replicas(app, source)


def selected_replicas(app: AppDef, source: LogSource) -> list[tuple[str, int]]:
    """Return the replicas of an app that a log identifier selects, as role and index.

    Raises:
        RequestError: The app has no such role or replica, or the scheduler does not return the
            app's roles and the identifier names no replica.
    """
    if source.role is not None and source.replicas is not None and not app.roles:
        # A scheduler may no longer return the roles of an app, but still have the app's logs.
        return [(source.role, index) for index in source.replicas]
    existing = find_role_replicas(app, source.role)
    if not app.roles or not (existing or source.role):
        name = source.role or "ROLE"
        raise RequestError(
            f"{source.app_handle}: the scheduler does not return the roles of this app; name the"
            f" replica: {source.app_handle}/{name}/0"
        )
    if source.role is not None and not existing:
        names = [role.name for role in app.roles]
        raise RequestError(
            f"{source.app_handle} has no role '{source.role}';{nearest(source.role, names)}"
            f" roles: {', '.join(names)}"
        )
    if source.replicas is None:
        return existing
    indices = {index for _, index in existing}
    for index in source.replicas:
        if index not in indices:
            raise RequestError(
                f"role '{source.role}' has no replica {index}; it has 0 to {len(existing) - 1}"
            )
    return [(str(source.role), index) for index in source.replicas]


def find_role_replicas(app: AppDef, role_name: str | None) -> list[tuple[str, int]]:
    """Return the replicas of a role as role and index; None as the role means all roles."""
    return [
        (role.name, index)
        for role in app.roles
        if role_name is None or role_name == role.name
        for index in range(role.num_replicas)
    ]
