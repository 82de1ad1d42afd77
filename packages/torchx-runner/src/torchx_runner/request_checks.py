"""Checks a request before it is submitted, and collects all its problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_origin

from torchx_kit.role_checks import (
    entrypoint_problems,
    max_retries_problems,
    num_replicas_problems,
)
from torchx_runner.misplaced_secrets import misplaced_secrets
from torchx_runner.older_signatures import call_with_accepted
from torchx_specs.errors import InvalidRunConfigException, RequestError, WorkspaceError
from torchx_specs.formats.documents import TOO_DEEP, is_too_deep
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.resources import Resource
from torchx_specs.model.secrets import secret_problems
from torchx_specs.redaction import masked, masked_value
from torchx_specs.schedulers.api import Scheduler
from torchx_specs.schedulers.older import features_of
from torchx_specs.workspace.api import WorkspaceMixin

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal, runopt, runopts


def raise_problems(problems: Sequence[Exception]) -> None:
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
    lines = list(dict.fromkeys(line for problem in problems for line in _lines(problem)))
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


def consists_of_roles(app: object) -> bool:
    """Return True if an app is an AppDef with roles that can be copied, as later checks require."""
    return (
        isinstance(app, AppDef)
        and isinstance(app.roles, list)
        and not _deep_fields(app)
        and all(isinstance(role, Role) and not _deep_fields(role) for role in app.roles)
    )


def _deep_fields(owner: AppDef | Role) -> list[str]:
    """Return a problem for each field whose value is nested too deeply to be copied."""
    fields = dict(vars(owner))
    if isinstance(owner, Role):
        fields["resource"] = getattr(owner.resource, "capabilities", None)
    return [f"{name} is {TOO_DEEP}" for name, value in fields.items() if is_too_deep(value)]


def check_app(app: AppDef) -> list[Exception]:
    """Return a list with one error for all scheduler-independent problems, or an empty list."""
    if not isinstance(app, AppDef):
        return [RequestError(f"expected an AppDef, got a {type(app).__name__}: {app!r:.100}")]
    problems = list(_app_problems(app))
    return [RequestError(problems)] if problems else []


def _app_problems(app: AppDef) -> Iterator[str]:
    if not isinstance(app.name, str):
        yield f"the app's name must be a str, got {app.name!r}"
    if not isinstance(app.roles, list):
        yield f"the app's roles must be a list of Role, got {app.roles!r:.100}"
        return
    yield from (f"app '{app.name}': {problem}" for problem in _deep_fields(app))
    if not app.roles:
        yield f"app '{app.name}' has no roles; add at least one Role to AppDef.roles"
    names: set[str] = set()
    duplicates: set[str] = set()
    for index, role in enumerate(app.roles):
        if not isinstance(role, Role):
            yield f"roles[{index}] must be a Role, got a {type(role).__name__}"
            continue
        if not isinstance(role.name, str) or not role.name:
            yield f"roles[{index}] needs a name, got {role.name!r}"
        elif role.name in names and role.name not in duplicates:
            duplicates.add(role.name)
            count = sum(isinstance(r, Role) and r.name == role.name for r in app.roles)
            yield f"{count} roles are named '{role.name}'; give each role its own name"
        names.add(role.name)
        for problem in _role_problems(role):
            yield f"role '{role.name}': {problem}"


def _role_problems(role: Role) -> Iterator[str]:
    # Schedulers call the checks of torchx_kit.role_checks, too. A problem that several checks find
    # is reported once, because their texts are equal.
    yield from _deep_fields(role)
    missing = list(entrypoint_problems(role))
    yield from missing
    if not missing and not isinstance(role.entrypoint, str):
        yield f"entrypoint must be a str, got {role.entrypoint!r}"
    elif not missing and "\0" in role.entrypoint:
        yield "entrypoint contains a NUL character"
    if not isinstance(role.image, str):
        yield f"image must be a str, got {role.image!r}"
    yield from _count_problems(role)
    yield from _args_problems(role.args)
    yield from _env_problems(role.env)
    if not isinstance(role.resource, Resource):
        hint = f"; write resource(h={role.resource!r})" if isinstance(role.resource, str) else ""
        yield f"resource must be a Resource, got {role.resource!r}{hint}"


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count_problems(role: Role) -> Iterator[str]:
    if not _is_int(role.num_replicas):
        yield f"num_replicas must be an int, got {role.num_replicas!r}"
    elif problems := list(num_replicas_problems(role.num_replicas)):
        yield from problems
    elif role.min_replicas is not None:
        if not _is_int(role.min_replicas):
            yield f"min_replicas must be an int, got {role.min_replicas!r}"
        elif role.min_replicas < 0:
            yield f"min_replicas is {role.min_replicas}; it must be 0 or more"
        elif role.min_replicas > role.num_replicas:
            yield (
                f"min_replicas ({role.min_replicas}) is larger than"
                f" num_replicas ({role.num_replicas})"
            )
    if not _is_int(role.max_retries):
        yield f"max_retries must be an int, got {role.max_retries!r}"
    else:
        yield from max_retries_problems(role.max_retries)


def _args_problems(args: object) -> Iterator[str]:
    if not isinstance(args, (list, tuple)):
        yield f"args must be a list of str, got {masked(args)!r:.100}"
        return
    for index, arg in enumerate(args):
        if not isinstance(arg, str):
            yield f"args[{index}] must be a str, got {masked(args)[index]!r:.100}"
        elif "\0" in arg:
            yield f"args[{index}] contains a NUL character"


def _env_problems(env: object) -> Iterator[str]:
    if not isinstance(env, Mapping):
        yield f"env must be a dict of str to str, got a {type(env).__name__}"
        return
    for key, value in env.items():
        # Allow a `=` after the first character: job_env.split_variable_names moves the rest of the
        # name into the value.
        if not isinstance(key, str) or not key or key[0] == "=" or "\0" in key:
            yield f"env has {key!r}, which is not a valid variable name"
        elif not isinstance(value, str):
            yield f"env[{key!r}] must be a str, got {masked_value(key, value)!r:.100}"
        elif "\0" in value:
            yield f"env[{key!r}] contains a NUL character"


# -- checks of the scheduler's options


def resolve_cfg(
    scheduler: Scheduler[Any], cfg: Mapping[str, CfgVal], problems: list[Exception]
) -> Any:
    """Return the resolved options of a scheduler, or None if they have problems.

    Args:
        scheduler: The scheduler.
        cfg: The given options.
        problems: The list to append problems to.
    """
    try:
        return scheduler._resolve_cfg(cfg)
    except InvalidRunConfigException as e:
        problems.append(e)
        problems += _further_option_problems(scheduler.run_opts(), cfg, e)
    except ValueError as e:
        problems.append(e)
    return None


def _further_option_problems(
    opts: runopts, cfg: Mapping[str, CfgVal], first: InvalidRunConfigException
) -> Iterator[Exception]:
    """Yield further problems: replace each wrong option with a valid one, and resolve again."""
    rest = dict(cfg)
    problem = first
    for _ in range(len(cfg) + len(opts)):
        key = problem.cfg_key
        for spelling in [k for k in rest if k == key or opts.canonical_key(k) == key]:
            del rest[spelling]
        opt = opts.get(key)
        if opt is not None:
            rest[key] = _valid_value(opt)
        try:
            opts.resolve(rest)
            return
        except InvalidRunConfigException as e:
            if e.cfg_key == key:
                return
            problem = e
            yield e


def _valid_value(opt: runopt) -> Any:
    if not opt.is_required:
        return opt.default
    try:
        return (get_origin(opt.opt_type) or opt.opt_type)()
    except TypeError:
        return None


# -- checks by the scheduler


def check_secrets(scheduler: Scheduler[Any], app: AppDef, name: str) -> list[Exception]:
    """Return a list with one error for all problems with secret references, or an empty list.

    Args:
        scheduler: The scheduler. Whether it resolves references is in its features.
        app: The app.
        name: Name of the scheduler.
    """
    resolves_secrets = bool(features_of(scheduler).secrets)
    problems = [
        *misplaced_secrets(app, resolves_secrets),
        *secret_problems(app, name, resolves_secrets),
    ]
    return [RequestError(problems)] if problems else []


def check_by_scheduler(
    scheduler: Scheduler[Any], app: AppDef, name: str, cfg: Any, problems: list[Exception]
) -> bool:
    """Run the checks of a scheduler that come before the build of workspaces.

    Args:
        scheduler: The scheduler.
        app: The app.
        name: Name of the scheduler.
        cfg: The resolved options; None if they have problems.
        problems: The list to append problems to.

    Returns:
        True if ``_validate`` must be called after the build, because the scheduler overrides it and
        it may depend on the built image.
    """
    overridden = _has_own_validate(scheduler)
    builds = isinstance(scheduler, WorkspaceMixin) and any(role.workspace for role in app.roles)
    if cfg is not None:
        run_check(problems, scheduler._pre_build_validate, app, name, cfg)
    if overridden and builds:
        return True
    if cfg is not None or not overridden:
        run_check(problems, scheduler._validate, app, name, cfg)
    return False


def _has_own_validate(scheduler: Scheduler[Any]) -> bool:
    return type(scheduler)._validate is not Scheduler._validate


def run_check(problems: list[Exception], check: Any, *args: object) -> None:
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
