"""Checks of apps, roles and replicas that schedulers share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from torchx_kit.errors import UnknownReplicaError
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.constants import MAX_REPLICAS, MISSING

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, Role

_Result = TypeVar("_Result")


def for_each_role(roles: Iterable[Role], function: Callable[[Role], _Result]) -> list[_Result]:
    """Return the results of a function that is called with each role.

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


def app_problems(app: AppDef) -> Iterator[str]:
    """Yield the problems of an app's list of roles: it is empty, or roles have the same name."""
    if not app.roles:
        yield f"app '{app.name}' has no roles; add at least one Role to AppDef.roles"
    names = [role.name for role in app.roles]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"{names.count(name)} roles are named '{name}'; give each role its own name"


def entrypoint_problems(role: Role) -> Iterator[str]:
    """Yield a problem if the role has no entrypoint."""
    if not role.entrypoint or role.entrypoint == MISSING:
        yield "no entrypoint; set Role.entrypoint to the program to run"


def image_problems(role: Role) -> Iterator[str]:
    """Yield a problem if the role's image is missing, or has spaces or control characters."""
    if not role.image:
        yield "no image; set Role.image to the container image to run"
    elif any(c.isspace() or not c.isprintable() for c in role.image):
        yield f"image {role.image!r} contains a space or a control character"


def replica_count_problems(role: Role, least: int = 1) -> Iterator[str]:
    """Yield the problems of a role's numbers of replicas and retries.

    Args:
        role: The role.
        least: The smallest number of replicas that the scheduler runs.
    """
    yield from num_replicas_problems(role.num_replicas, least)
    yield from max_retries_problems(role.max_retries)


def num_replicas_problems(number: int, least: int = 1) -> Iterator[str]:
    """Yield a problem if a role has too few or too many replicas."""
    if number < least:
        yield f"num_replicas is {number}; it must be {least} or more"
    if number > MAX_REPLICAS:
        yield f"num_replicas is {number}; it must be {MAX_REPLICAS} or less"


def max_retries_problems(number: int) -> Iterator[str]:
    """Yield a problem if a role has a negative number of retries."""
    if number < 0:
        yield f"max_retries is {number}; it must be 0 or more"


def text_problems(role: Role, api: str) -> Iterator[str]:
    """Yield a problem for each text of a role that a JSON API cannot carry.

    Names of environment variables are checked as by :func:`variable_problems`.

    Args:
        role: The role.
        api: Name of the API, for the message.
    """
    texts = {"its name": role.name, "entrypoint": role.entrypoint}
    texts.update({f"args[{index}]": str(argument) for index, argument in enumerate(role.args)})
    for where, text in texts.items():
        problem = text_problem(text, api)
        if problem:
            yield f"{where} {problem}"
    for key, value in role.env.items():
        yield from variable_problems(key, value, api)


def variable_problems(key: str, value: str, api: str) -> Iterator[str]:
    """Yield the problems of one environment variable.

    Args:
        key: The variable's name.
        value: The variable's value, which messages do not repeat.
        api: Name of the API, for the message.
    """
    if not key or "=" in key:
        yield f"env has {key!r}, which is not a valid variable name"
    problem = text_problem(f"{key}{value}", api)
    if problem:
        yield f"env[{key!r}] {problem}"


def text_problem(text: str, api: str) -> str:
    """Return why a JSON API cannot carry a text, or an empty string if it can."""
    if "\0" in text:
        return "contains a NUL character"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return f"contains bytes that are not UTF-8, which {api} cannot carry"
    return ""


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
