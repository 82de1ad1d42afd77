"""Selects the replicas whose logs are read, and waits until the app has started if necessary."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from torchx_cli.launch.reports import StateChanges, intervals
from torchx_cli.logs.identifier import LogSource, parse_identifier
from torchx_cli.runner_context import is_double
from torchx_specs.errors import RequestError, UnknownAppException, nearest
from torchx_specs.model.status import AppState, is_started

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef

logger = logging.getLogger(__name__)


def select_replicas(runner: Runner, identifier: str) -> tuple[str, list[tuple[str, int]]]:
    """Return the app and the replicas that a log identifier selects, once the app has started.

    Raises:
        RequestError: The identifier is malformed, or the app has no such role or replica.
        UnknownAppException: The app does not exist.
    """
    source = parse_identifier(identifier)
    return source.app_handle, started_replicas(runner, source)


def replicas_now(
    runner: Runner, source: LogSource, *, only_failed: bool = False
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
    named = _named_for_double(runner, source)
    if named is not None:
        return named
    status = runner.status(source.app_handle)
    if status is None:
        raise UnknownAppException(source.app_handle)
    if not is_started(status.state):
        return None
    replicas = _replicas_of(runner, source)
    if not only_failed:
        return replicas
    failed = {
        (role.role, replica.id)
        for role in status.roles
        for replica in role.replicas
        if replica.state == AppState.FAILED
    }
    return [replica for replica in replicas if replica in failed]


def started_replicas(
    runner: Runner, source: LogSource, changes: StateChanges | None = None
) -> list[tuple[str, int]]:
    """Wait until an app has started, and return the selected replicas as role and index.

    Args:
        runner: The runner.
        source: The app, and the role and replicas to select.
        changes: Logs the app's states during the wait; None means a new object.

    Raises:
        RequestError: The app has no such role or replica.
        UnknownAppException: The app does not exist.
    """
    named = _named_for_double(runner, source)
    if named is not None:
        return named
    changes = changes or StateChanges()
    for interval in intervals():
        status = runner.status(source.app_handle)
        if status is None:
            raise UnknownAppException(source.app_handle)
        if is_started(status.state):
            break
        changes.observe(status)
        time.sleep(interval)
    return _replicas_of(runner, source)


def _named_for_double(runner: Runner, source: LogSource) -> list[tuple[str, int]] | None:
    """Return the replicas that an identifier names if the runner is a test double, else None.

    A test double may never report that its app has started, so do not wait for that.
    """
    if source.role is None or source.replicas is None or not is_double(runner):
        return None
    return [(source.role, index) for index in source.replicas]


def _replicas_of(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    app = runner.describe(source.app_handle)
    if app is None:
        raise UnknownAppException(source.app_handle)
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
    if not app.roles:
        name = source.role or "ROLE"
        raise RequestError(
            f"{source.app_handle}: the scheduler does not return the roles of this app; name the"
            f" replica: {source.app_handle}/{name}/0"
        )
    existing = replicas_of_role(app, source)
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


def replicas_of_role(app: AppDef, source: LogSource) -> list[tuple[str, int]]:
    """Return the replicas of the role that an identifier names, as role and index.

    If the identifier names no role, return the replicas of all roles.

    Raises:
        RequestError: The app has roles, but not this role.
    """
    found = find_role_replicas(app, source.role)
    if source.role is not None and app.roles and not found:
        names = [role.name for role in app.roles]
        raise RequestError(
            f"{source.app_handle} has no role '{source.role}';{nearest(source.role, names)}"
            f" roles: {', '.join(names)}"
        )
    return found
