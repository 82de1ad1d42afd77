"""Checks of roles and replicas that schedulers share.

The checks of a request are in :mod:`torchx_specs.schedulers.request_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from torchx_kit.errors import UnknownReplicaError
from torchx_specs.errors import RequestError, nearest

_Result = TypeVar("_Result")


def for_each_role(roles: Iterable[Any], function: Callable[[Any], _Result]) -> list[_Result]:
    """Return the results of a function that is called with each role.

    Args:
        roles: The roles, or requests with their names.
        function: The function.

    Raises:
        RequestError: The function has raised this error; the new error lists the problems of all
            roles.
    """
    problems: list[str] = []
    found: list[_Result] = []
    for role in roles:
        try:
            found.append(function(role))
        except RequestError as e:
            problems += [f"role '{role.name}': {problem}" for problem in e.problems]
    if problems:
        raise RequestError(problems)
    return found


def check_replica(app: str, replicas: Mapping[str, int], role: str, index: int) -> None:
    """Raise an error unless the app has that replica.

    Args:
        app: Name or id of the app, for the message.
        replicas: The number of replicas of each role, by the role's name.
        role: The role's name.
        index: Index of the replica in its role.

    Raises:
        UnknownReplicaError: The app has no such role, or the role has no such replica.
    """
    if role not in replicas:
        raise UnknownReplicaError(
            f"app {app} has no role '{role}';{nearest(role, replicas)} roles: {', '.join(replicas)}"
        )
    if not 0 <= index < replicas[role]:
        raise UnknownReplicaError(
            f"role '{role}' of app {app} has no replica {index};"
            f" its replicas are 0 to {replicas[role] - 1}"
        )
