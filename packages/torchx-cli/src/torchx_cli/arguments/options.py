"""Options and arguments that several commands share: ``-s``, ``-cfg``, ``-o`` and handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from torchx_cli.output.printing import JSON, TABLE, YAML
from torchx_specs.errors import RequestError
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.plugins.manager import get_manager

F = TypeVar("F", bound=Callable[..., Any])


def single_value_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator for an option that may be repeated only with the same value.

    Args:
        names: As for ``click.option``.
        settings: As for ``click.option``; the callback receives the single value.
    """
    callback = settings.pop("callback", None)

    def check(ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
        distinct = list(dict.fromkeys(values))
        if len(distinct) > 1:
            raise click.UsageError(
                f"{'/'.join(param.opts)} is given {len(distinct)} times, with different values:"
                f" {', '.join(map(str, distinct))}",
                ctx,
            )
        value = distinct[0] if distinct else None
        return callback(ctx, param, value) if callback else value

    return click.option(*names, multiple=True, callback=check, **settings)


def scheduler_option(function: F) -> F:
    """Add ``-s``; the command receives the name of a scheduler, or None."""
    return single_value_option(
        "-s",
        "--scheduler",
        metavar="NAME",
        shell_complete=complete_schedulers,
        help="Use this scheduler.  [default: as in .torchxconfig, else local_cwd, else the only one"
        " that is installed]",
    )(function)


def cfg_option(function: F) -> F:
    """Add ``-cfg``, which may be repeated."""
    return click.option(
        "-cfg",
        "--cfg",
        "--scheduler_args",
        "scheduler_args",
        metavar="KEY=VALUE,...",
        multiple=True,
        help="Set options of the scheduler (torchx runopts NAME lists them).",
    )(function)


def output_option(function: F) -> F:
    """Add ``-o`` and ``--json``; the command receives the parameter ``output_format``."""

    def format_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        wants_json = ctx.params.pop("as_json", False)
        if wants_json and value not in (None, JSON):
            raise click.UsageError(f"--json and -o {value} contradict each other", ctx)
        return JSON if wants_json else value or TABLE

    function = click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice([TABLE, JSON, YAML]),
        callback=format_of,
        help="Print the result in this format.  [default: table]",
    )(function)
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        help="Print the result as JSON (same as -o json).",
    )(function)


def handle_argument(function: F) -> F:
    """Add the argument HANDLE, the handle of one app."""
    return click.argument("app_handle", metavar="HANDLE", callback=_checked_handle)(function)


def handles_argument(function: F) -> F:
    """Add the argument HANDLE..., the handles of one or more apps."""
    return click.argument(
        "app_handles", metavar="HANDLE...", nargs=-1, required=True, callback=_checked_handles
    )(function)


def _checked_handle(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not ctx.resilient_parsing:
        parsed = parse_app_handle(value)
        if "/" in parsed.session_name:
            scheduler, _, path = value.partition("://")
            handle = "/".join(path.split("/")[:2])
            raise RequestError(
                f"'{value}' has more parts than the handle of an app; only 'torchx log' accepts a"
                f" role and replicas. Use '{scheduler}://{handle}'"
            )
    return value


def _checked_handles(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(_checked_handle(ctx, param, value) for value in values)


def complete_schedulers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of schedulers for shell completion, without importing any scheduler."""
    return [name for name in get_manager().schedulers().names() if name.startswith(incomplete)]


def complete_components(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of components for shell completion of the component argument."""
    if ctx.params.get(param.name or ""):
        return []
    try:
        from torchx_runner.components.finder import get_components

        return [name for name in sorted(get_components()) if name.startswith(incomplete)]
    except Exception:  # no completion is better than a traceback in the shell
        return []
