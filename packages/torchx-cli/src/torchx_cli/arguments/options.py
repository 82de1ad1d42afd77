"""Options and arguments that several commands share: ``-s``, ``-cfg``, ``-o`` and handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from torchx_cli.arguments.command import SingleValueOption
from torchx_cli.completion.values import complete_apps, complete_cfg, complete_schedulers
from torchx_cli.output.printing import JSON, TABLE, YAML

F = TypeVar("F", bound=Callable[..., Any])

# The key of the flag --json in the metadata of a context.
_WANTS_JSON = "torchx.wants_json"


def single_value_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator for an option that may be repeated only with the same value.

    Args:
        names: As for ``click.option``.
        settings: As for ``click.option``; the callback receives the single value, or None.
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

    return click.option(*names, cls=SingleValueOption, multiple=True, callback=check, **settings)


def scheduler_option(function: F) -> F:
    """Add ``-s`` for a submission; the command receives the name of a scheduler, or None."""
    return any_scheduler_option(
        "Use this scheduler.  [default: as in .torchxconfig, else local_cwd, else the only one that"
        " is installed]"
    )(function)


def any_scheduler_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds ``-s``; the command receives the name of a scheduler, or None.

    Args:
        help_text: The help text, which names the command's default.
    """
    return single_value_option(
        "-s",
        "--scheduler",
        metavar="NAME",
        shell_complete=complete_schedulers,
        help=help_text,
    )


def cfg_option(function: F) -> F:
    """Add ``-cfg``, which may be repeated; the command receives the tuple ``scheduler_args``."""
    return click.option(
        "-cfg",
        "--cfg",
        "--scheduler_args",
        "scheduler_args",
        metavar="KEY=VALUE,...",
        multiple=True,
        shell_complete=complete_cfg,
        help="Set options of the scheduler (torchx runopts NAME lists them).",
    )(function)


def output_option(function: F) -> F:
    """Add ``-o`` and ``--json``; the command receives the parameter ``output_format``."""
    return output_option_of(TABLE, JSON, YAML)(function)


def output_option_of(*formats: str) -> Callable[[F], F]:
    """Return a decorator that adds ``-o`` with the given formats, and ``--json``.

    Args:
        formats: The formats, ``table`` and ``json`` among them. The command receives one of them
            as the parameter ``output_format`` (default: ``table``).
    """

    def format_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        wants_json = ctx.meta.pop(_WANTS_JSON, False)
        if wants_json and value not in (None, JSON):
            raise click.UsageError(f"--json and -o {value} contradict each other", ctx)
        return JSON if wants_json else value or TABLE

    def set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        ctx.meta[_WANTS_JSON] = value

    def add(function: F) -> F:
        function = click.option(
            "-o",
            "--output",
            "output_format",
            type=click.Choice(formats),
            callback=format_of,
            help="Print the result in this format.  [default: table]",
        )(function)
        return click.option(
            "--json",
            "as_json",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=set_json,
            help="Print the result as JSON (same as -o json).",
        )(function)

    return add


def handle_argument(function: F) -> F:
    """Add the argument HANDLE, the handle or a short name of one app."""
    return click.argument(
        "app_handle", metavar="HANDLE", callback=_checked_handle, shell_complete=complete_apps
    )(function)


def handles_argument(function: F) -> F:
    """Add the argument HANDLE..., the handles or short names of one or more apps."""
    return _handles_argument("HANDLE...", required=True)(function)


def optional_handles_argument(function: F) -> F:
    """Add the argument [HANDLE]..., the handles or short names of any number of apps."""
    return _handles_argument("[HANDLE]...", required=False)(function)


def _handles_argument(metavar: str, *, required: bool) -> Callable[[F], F]:
    return click.argument(
        "app_handles",
        metavar=metavar,
        nargs=-1,
        required=required,
        callback=_checked_handles,
        shell_complete=complete_apps,
    )


def _checked_handle(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if ctx.resilient_parsing:
        return value
    if value.startswith("-"):  # the command accepts unknown options after the handle
        raise click.NoSuchOption(value, ctx=ctx)
    from torchx_cli.arguments.handles import resolve_handle

    return resolve_handle(value)


def _checked_handles(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    if ctx.resilient_parsing or not any(value.startswith("@") for value in values):
        return tuple(_checked_handle(ctx, param, value) for value in values)
    from torchx_cli.arguments.handles import submitted_handles

    found = submitted_handles(values)
    return tuple(found.get(value) or _checked_handle(ctx, param, value) for value in values)


def notify_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--notify``; the command receives a tuple of names."""
    return click.option(
        "--notify",
        metavar="NAME,...",
        multiple=True,
        callback=split_names,
        help=help_text,
    )


def split_names(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the distinct names in the values of an option, each a list separated by commas."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
