"""Checks a request before anything is built or submitted, and collects all its problems.

:func:`check_request` is the only entry. The runner calls it for each dry run, and
``Scheduler.submit_dryrun`` calls it if no runner did. What differs between schedulers is data
(:class:`RequestRules`), or a problem that ``Scheduler._request_problems`` yields.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from torchx_specs.errors import InvalidRunConfigException, RequestError, WorkspaceError
from torchx_specs.model.app import AppDef, Role, consists_of_roles
from torchx_specs.model.constants import ENDS_APP_KEY, MAX_REPLICAS, MISSING
from torchx_specs.model.resources import Resource
from torchx_specs.model.secrets import is_secret_reference, parse_secret
from torchx_specs.options.run_options import CfgVal
from torchx_specs.redaction import masked, masked_value
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.older import call_with_accepted
from torchx_specs.workspace.api import WorkspaceMixin

# ${secret:-x} and ${secret:0} do not match: they are parameter expansions of a shell.
_REFERENCE = re.compile(r"\$\{secret:[A-Za-z][\w./-]*\}")


class RequestRules(NamedTuple):
    """The rules of a scheduler for every request, as data.

    Args:
        needs_resource: Whether ``Scheduler._validate`` refuses a role without a resource.
        needs_entrypoint: Whether ``submit_dryrun`` refuses a role without an entrypoint. A runner
            always refuses such a role.
        needs_image: Whether a role needs a container image; False means that the image may be
            empty, and None that it may be any text, such as a path.
        max_retries: The largest number of retries; None means no limit.
    """

    needs_resource: bool = True
    needs_entrypoint: bool = False
    needs_image: bool | None = None
    max_retries: int | None = None


def check_request(
    scheduler: Any,
    features: SchedulerFeatures,
    app: AppDef,
    cfg: Mapping[str, CfgVal],
    *,
    name: str | None = None,
    known: Iterable[Exception] = (),
    build: Callable[[Any], object] | None = None,
) -> Any:
    """Check an app and the options of a scheduler, and return the resolved options.

    The caller has called :func:`~torchx_specs.model.app.check_depth`.

    Args:
        scheduler: The :class:`~torchx_specs.schedulers.Scheduler`, or None if ``known`` has the
            reason why there is none.
        features: What the scheduler can do.
        app: The app.
        cfg: The given options.
        name: The scheduler's name if a runner makes the request. The hooks ``_pre_build_validate``
            and ``_validate`` are then called, each role needs an entrypoint, and names of variables
            may contain ``=``, because the runner corrects them. None means that there is no runner.
        known: Problems that the caller has found.
        build: Called with the resolved options if there are no problems, to plan or build the
            workspaces. ``_validate`` is then called after it if the scheduler overrides
            ``_validate``, because it may depend on the built image.

    Raises:
        InvalidRunConfigException: An option is unknown, missing or of the wrong type.
        RequestError: The app is invalid, or there are several problems; ``problems`` lists them.
        WorkspaceError: A check cannot read a workspace.
    """
    rules = getattr(scheduler, "request_rules", RequestRules())
    refusal = str(features.not_utf8) if isinstance(features.not_utf8, No) else ""
    found = _app_problems(app, rules, refusal, name)
    problems: list[Exception] = [*map(RequestError, found), *known]
    options = None if scheduler is None else _resolved(scheduler, cfg, problems)
    if scheduler is None or not consists_of_roles(app):
        _raise(problems)
        return None
    found = secret_problems(app, name or scheduler.backend, bool(features.secrets))
    problems += map(RequestError, found)
    if not features.ends_app and any(role.metadata.get(ENDS_APP_KEY) for role in app.roles):
        problems.append(features.error("ends_app", name or scheduler.backend))
    overrides = sum("_validate" in vars(cls) for cls in type(scheduler).__mro__) > 1
    builds = isinstance(scheduler, WorkspaceMixin) and any(role.workspace for role in app.roles)
    late = build is not None and builds and overrides
    if options is not None:
        # a class that is no Scheduler lacks the method
        own = getattr(scheduler, "_request_problems", lambda app, options: ())
        _attempt(problems, lambda: problems.extend(map(RequestError, own(app, options))))
        if name is not None:
            _attempt(problems, scheduler._pre_build_validate, app, name, options)
    if name is not None and not late and (options is not None or not overrides):
        _attempt(problems, scheduler._validate, app, name, options)
    _raise(problems)
    if build is not None:
        build(options)
    if late:
        _attempt(problems, scheduler._validate, app, name, options)
        _raise(problems)
    return options


# -- collecting problems


def _attempt(problems: list[Exception], check: Callable[..., object], *args: object) -> None:
    """Call a check; if it raises a ValueError or a WorkspaceError, append that to ``problems``.

    A check that was written for an older release of TorchX may accept fewer arguments. If the
    request already has problems, any other exception of the check is ignored, because these
    problems may have caused it.
    """
    try:
        call_with_accepted(check, *args)
    except (ValueError, WorkspaceError) as e:
        problems.append(e)
    except Exception:
        if not problems:
            raise


def _raise(problems: Sequence[Exception]) -> None:
    """Raise one error for all problems; return if there are none.

    A single problem is raised unchanged, but a plain ValueError becomes a RequestError. Several
    problems with scheduler options become one InvalidRunConfigException, and any other combination
    one RequestError, whose attribute ``problems`` lists them.
    """
    if not problems:
        return
    if len(problems) == 1:
        # A plain ValueError comes from a third-party scheduler.
        if type(problems[0]) is ValueError:
            raise RequestError(str(problems[0])) from problems[0]
        raise problems[0]
    lines = [line for problem in problems for line in _lines(problem)]
    if all(isinstance(problem, InvalidRunConfigException) for problem in problems):
        first: Any = problems[0]
        merged = InvalidRunConfigException("; ".join(lines), first.cfg_key, first.cfg)
        merged.problems = tuple(lines)
        raise merged
    raise RequestError(lines)


def _lines(problem: Exception) -> tuple[str, ...]:
    if isinstance(problem, InvalidRunConfigException):
        return (problem.invalid_reason,)  # str(problem) also contains all options
    return problem.problems if isinstance(problem, RequestError) else (str(problem),)


# -- checks of the app


def _app_problems(
    app: object, rules: RequestRules, refusal: str, runner: str | None
) -> Iterator[str]:
    if not isinstance(app, AppDef):
        yield f"expected an AppDef, got a {type(app).__name__}: {app!r:.100}"
        return
    if not isinstance(app.name, str):
        yield f"the app's name must be a str, got {app.name!r}"
    elif refusal and (problem := text_problem(app.name, refusal)):
        yield f"the app's name {problem}"
    if not isinstance(app.roles, list):
        yield f"the app's roles must be a list of Role, got {app.roles!r:.100}"
        return
    yield from app_problems(app)
    for index, role in enumerate(app.roles):
        if not isinstance(role, Role):
            yield f"roles[{index}] must be a Role, got a {type(role).__name__}"
            continue
        if not isinstance(role.name, str) or not role.name:
            yield f"roles[{index}] needs a name, got {role.name!r}"
        elif refusal and (problem := text_problem(role.name, refusal)):
            yield f"role '{role.name}': its name {problem}"
        for problem in _role_problems(role, rules, refusal, runner):
            yield f"role '{role.name}': {problem}"


def app_problems(app: AppDef) -> Iterator[str]:
    """Yield the problems of an app's list of roles: it is empty, or roles have the same name."""
    if not app.roles:
        yield f"app '{app.name}' has no roles; add at least one Role to AppDef.roles"
    names = [role.name for role in app.roles if isinstance(role, Role)]
    for name, count in Counter(name for name in names if isinstance(name, str) and name).items():
        if count > 1:
            yield f"{count} roles are named '{name}'; give each role its own name"


def _role_problems(
    role: Role, rules: RequestRules, refusal: str, runner: str | None
) -> Iterator[str]:
    missing = list(entrypoint_problems(role))
    if runner is not None or rules.needs_entrypoint:
        yield from missing
    if not missing and not isinstance(role.entrypoint, str):
        yield f"entrypoint must be a str, got {role.entrypoint!r}"
    elif not missing and (problem := text_problem(role.entrypoint, refusal)):
        yield f"entrypoint {problem}"
    if not isinstance(role.image, str):
        yield f"image must be a str, got {role.image!r}"
    elif rules.needs_image or (rules.needs_image is False and role.image):
        yield from image_problems(role)
    yield from replica_count_problems(role, rules.max_retries)
    yield from _args_problems(role.args, refusal)
    if isinstance(role.env, Mapping):
        for key, value in role.env.items():
            yield from variable_problems(key, value, refusal, splits=runner is not None)
    else:
        yield f"env must be a dict of str to str, got a {type(role.env).__name__}"
    if not isinstance(role.resource, Resource):
        hint = f"; write resource(h={role.resource!r})" if isinstance(role.resource, str) else ""
        yield f"resource must be a Resource, got {role.resource!r}{hint}"


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


def _count_problems(name: str, value: object, least: int, most: float, limit: str) -> Iterator[str]:
    """Yield a problem if a number of replicas or retries is no number, or out of its range.

    Args:
        name: The field of the role.
        value: The value.
        least: The smallest valid number.
        most: The largest valid number.
        limit: What a larger number breaks, for the message.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        yield f"{name} must be an int, got {value!r}"
    elif value < least:
        yield f"{name} is {value}; it must be {least} or more"
    elif value > most:
        yield f"{name} is {value}; {limit}"


def replica_count_problems(role: Role, max_retries: int | None = None) -> Iterator[str]:
    """Yield the problems of a role's numbers of replicas and retries.

    Args:
        role: The role.
        max_retries: As in :class:`RequestRules`.
    """
    limit = f"it must be {MAX_REPLICAS} or less"
    found = [*_count_problems("num_replicas", role.num_replicas, 1, MAX_REPLICAS, limit)]
    if role.min_replicas is not None and not found:
        limit = f"it must be {role.num_replicas} (num_replicas) or less"
        found += _count_problems("min_replicas", role.min_replicas, 0, role.num_replicas, limit)
    yield from found
    limit = f"the scheduler retries at most {max_retries} times"
    most = inf if max_retries is None else max_retries
    yield from _count_problems("max_retries", role.max_retries, 0, most, limit)


def _args_problems(args: object, refusal: str) -> Iterator[str]:
    if not isinstance(args, (list, tuple)):
        yield f"args must be a list of str, got {masked(args)!r:.100}"
        return
    for index, arg in enumerate(args):
        if not isinstance(arg, str):
            yield f"args[{index}] must be a str, got {masked(args)[index]!r:.100}"
        elif problem := text_problem(arg, refusal):
            yield f"args[{index}] {problem}"


def variable_problems(
    key: object, value: object, refusal: str = "", *, splits: bool = False
) -> Iterator[str]:
    """Yield the problems of one environment variable.

    Args:
        key: The variable's name.
        value: The variable's value, which messages do not repeat if it is a secret.
        refusal: As for :func:`text_problem`.
        splits: Whether the name may contain ``=`` after the first character, because the part
            after it becomes a part of the value.
    """
    wrong = not isinstance(key, str) or not key or "\0" in key
    if wrong or "=" in (str(key)[:1] if splits else str(key)):
        yield f"env has {key!r}, which is not a valid variable name"
    elif not isinstance(value, str):
        yield f"env[{key!r}] must be a str, got {masked_value(str(key), value)!r:.100}"
    elif problem := text_problem(f"{key}{value}", refusal):
        yield f"env[{key!r}] {problem}"


def text_problem(text: str, refusal: str = "") -> str:
    """Return why a text cannot be passed on, or an empty string if it can.

    Args:
        text: The text; surrogates stand for bytes that are not UTF-8.
        refusal: Why the text must be UTF-8, such as ``the API is JSON``; empty if it may have other
            bytes.
    """
    if "\0" in text:
        return "contains a NUL character"
    try:
        text.encode("utf-8", "strict" if refusal else "surrogateescape")
    except UnicodeEncodeError:
        if refusal:
            return f"contains bytes that are not UTF-8, which are refused: {refusal}"
        return "contains a lone surrogate, which no process can receive"
    return ""


# -- checks of references to secrets


def secret_problems(app: AppDef, scheduler: str, resolves_secrets: bool) -> Iterator[str]:
    """Yield the problems of an app's references to secrets.

    A reference must be the whole value of an environment variable.

    Args:
        app: The app.
        scheduler: Name of the scheduler.
        resolves_secrets: Whether the scheduler resolves references. If so, overlays in a role's
            metadata may have references as values of a container's environment variables.
    """
    yield from _misplaced(app.metadata, "metadata")
    for role in app.roles:
        mounts = [vars(mount) for mount in role.mounts or () if hasattr(mount, "__dict__")]
        where = f"role '{role.name}':"
        yield from _misplaced(role.entrypoint, f"{where} entrypoint")
        yield from _misplaced(role.image, f"{where} image")
        yield from _misplaced(role.args, f"{where} args")
        yield from _misplaced(role.metadata, f"{where} metadata", resolves_secrets)
        yield from _misplaced(mounts, f"{where} mounts")
        for key, value in role.env.items() if isinstance(role.env, Mapping) else ():
            variable = f"{where} env['{key}']"
            if not _REFERENCE.fullmatch(str(value)) and (found := [*_misplaced(value, variable)]):
                yield from found
                continue
            try:
                reference = parse_secret(value) if isinstance(value, str) else None
            except RequestError as e:
                yield f"{variable}: {e}"
                continue
            if reference and not resolves_secrets:
                yield (
                    f"{variable} refers to the secret '{reference.name}', but the scheduler"
                    f" {scheduler} does not resolve references to secrets; read the secret in the"
                    " program instead"
                )


def _misplaced(value: Any, where: str, may_have_env: bool = False) -> Iterator[str]:
    """Yield a problem for each text with a reference in nested data.

    Args:
        value: The data.
        where: The place of the data, for the message.
        may_have_env: Whether to allow references in environments of containers, which are lists of
            ``{"name": ..., "value": ...}``.
    """
    if isinstance(value, Mapping):
        is_variable = may_have_env and value.keys() == {"name", "value"}
        if is_variable and is_secret_reference(str(value["value"])):
            return
        for key, item in value.items():
            yield from _misplaced(item, f"{where}[{key!r}]", may_have_env)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _misplaced(item, f"{where}[{index}]", may_have_env)
    elif isinstance(value, str) and (found := _REFERENCE.search(value)):
        yield (
            f"{where} contains {found[0]}; a reference to a secret must be the whole value of a"
            " variable in env, which the program can read"
        )


# -- checks of the scheduler's options


def _resolved(scheduler: Any, cfg: Mapping[str, CfgVal], problems: list[Exception]) -> Any:
    """Return the resolved options, or None after an addition to ``problems``."""
    try:
        return scheduler._resolve_cfg(cfg)
    except InvalidRunConfigException as e:
        found = list(scheduler.run_opts().problems(cfg))
        problems += found if any(p.cfg_key == e.cfg_key for p in found) else [e, *found]
    except ValueError as e:
        problems.append(e)
    return None
