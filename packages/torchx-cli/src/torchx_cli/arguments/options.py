"""Options and arguments that several commands share: ``-s``, ``-cfg``, ``-o`` and handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from torchx_cli.output.printing import JSON, TABLE, YAML
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.plugins.manager import get_manager

F = TypeVar("F", bound=Callable[..., Any])


def single_value_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """An option that may be given again only with the same value.

    Args:
        names: as for ``click.option``
        settings: as for ``click.option``; a callback gets the one value
    """
    then = settings.pop("callback", None)

    def only(ctx: click.Context, param: click.Parameter, values: tuple[Any, ...]) -> Any:
        distinct = list(dict.fromkeys(values))
        if len(distinct) > 1:
            raise click.UsageError(
                f"{'/'.join(param.opts)} is given {len(distinct)} times, with different values:"
                f" {', '.join(map(str, distinct))}",
                ctx,
            )
        value = distinct[0] if distinct else None
        return then(ctx, param, value) if then else value

    return click.option(*names, multiple=True, callback=only, **settings)


def scheduler_option(function: F) -> F:
    """``-s``, the name of a scheduler or None."""
    return single_value_option(
        "-s",
        "--scheduler",
        metavar="NAME",
        shell_complete=complete_schedulers,
        help="The scheduler.  [default: as configured, else local_cwd, else the only one there is]",
    )(function)


def cfg_option(function: F) -> F:
    """``-cfg``, given any number of times."""
    return click.option(
        "-cfg",
        "--cfg",
        "--scheduler_args",
        "scheduler_args",
        metavar="KEY=VALUE,...",
        multiple=True,
        help="Options of the scheduler (those of NAME: torchx runopts NAME).",
    )(function)


def output_option(function: F) -> F:
    """``-o`` and ``--json``; the command gets ``form``."""

    def chosen(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        wants_json = ctx.params.pop("as_json", False)
        if wants_json and value not in (None, JSON):
            raise click.UsageError(f"--json and -o {value} contradict each other", ctx)
        return JSON if wants_json else value or TABLE

    function = click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice([TABLE, JSON, YAML]),
        callback=chosen,
        help="The form of what is printed on standard output.  [default: table]",
    )(function)
    return click.option(
        "--json", "as_json", is_flag=True, is_eager=True, help="The same as -o json."
    )(function)


def handle_argument(function: F) -> F:
    """The handle of an app."""
    return click.argument("app_handle", metavar="HANDLE", callback=_checked_handle)(function)


def handles_argument(function: F) -> F:
    """The handles of some apps."""
    return click.argument(
        "app_handles", metavar="HANDLE...", nargs=-1, required=True, callback=_checked_handles
    )(function)


def _checked_handle(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not ctx.resilient_parsing:
        parse_app_handle(value)
    return value


def _checked_handles(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(_checked_handle(ctx, param, value) for value in values)


def complete_schedulers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns names of schedulers for the shell, importing none of them."""
    return [name for name in get_manager().schedulers().names() if name.startswith(incomplete)]


def complete_components(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns names of components for the shell; past the component there is nothing to offer."""
    if ctx.params.get(param.name or ""):
        return []
    try:
        from torchx_runner.components.finder import get_components

        return [name for name in sorted(get_components()) if name.startswith(incomplete)]
    except Exception:  # a shell that completes nothing is better than a traceback in it
        return []
