"""Selects the replicas whose logs are read, after waiting until the app has started."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from torchx_cli.launch.polling import intervals
from torchx_cli.logs.identifier import LogSource, parse_identifier
from torchx_specs.errors import RequestError, UnknownAppException, nearest
from torchx_specs.model.status import is_started

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


def started_replicas(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    """Wait until an app has started, and return the selected replicas as role and index.

    Raises:
        RequestError: The app has no such role or replica.
        UnknownAppException: The app does not exist.
    """
    waiting = False
    for interval in intervals():
        status = runner.status(source.app_handle)
        if status is None:
            raise UnknownAppException(source.app_handle)
        if is_started(status.state):
            break
        if not waiting:
            waiting = True
            logger.info("waiting for %s to start", source.app_handle)
        time.sleep(interval)
    return _replicas_of(runner, source)


def _replicas_of(runner: Runner, source: LogSource) -> list[tuple[str, int]]:
    app = runner.describe(source.app_handle)
    if app is None:
        raise UnknownAppException(source.app_handle)
    if source.role is not None and source.replicas is not None and not app.roles:
        # A scheduler may no longer return the roles of an app, but still have the app's logs.
        return [(source.role, index) for index in source.replicas]
    existing = find_role_replicas(app, source.role)
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
