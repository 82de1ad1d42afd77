"""Commands with defaults in ``.torchxconfig``, and options and arguments that they share.

The options are ``-s``, ``-cfg``, ``-o``, handles and times.
"""

from __future__ import annotations

import functools
import re
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from torchx_cli.completion.values import complete_apps, complete_cfg, complete_schedulers
from torchx_cli.exit_codes import ARGV_KEY
from torchx_cli.output.printing import JSON, TABLE, YAML
from torchx_runner.config.api import get_cli_defaults
from torchx_specs.errors import ConfigError, nearest

F = TypeVar("F", bound=Callable[..., Any])

_FRACTION = r"(?<=:\d\d)\.\d+"
# The key of the flag --json in the metadata of a context.
_WANTS_JSON = "torchx.wants_json"


class SingleValueOption(click.Option):
    """An option that may be repeated only with the same value; completion offers it only once."""


class Command(click.Command):
    """A command whose options have defaults in ``.torchxconfig``, section ``[cli:NAME]``.

    Args:
        args: As for ``click.Command``.
        extra_keys: Keys that the section may contain although they are not options.
        kwargs: As for ``click.Command``.
    """

    def __init__(self, *args: Any, extra_keys: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extra_keys = frozenset(extra_keys)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = super().get_params(ctx)
        if ctx.resilient_parsing:  # completion
            once = [p for p in params if isinstance(p, SingleValueOption) and is_given(ctx, p.name)]
            params = [p for p in params if p not in once]
        return params

    def make_parser(self, ctx: click.Context) -> Any:
        # click looks up each argument among the long options first, and searches for similar names
        # if it finds none. That takes two milliseconds for a single `-s`. So add the short options
        # to the long ones.
        parser: Any = super().make_parser(ctx)
        with suppress(AttributeError):  # another version of click is slower, but correct
            parser._long_opt.update(parser._short_opt)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGV_KEY] = tuple(args)
        if not ctx.resilient_parsing:
            defaults: Any = ConfiguredDefaults(self, ctx)
            ctx.default_map = defaults
        return super().parse_args(ctx, args)


def is_given(ctx: click.Context, parameter: str | None) -> bool:
    """Return True if a parameter is on the command line, and not a default."""
    return ctx.get_parameter_source(parameter or "") is ParameterSource.COMMANDLINE


class Group(Command, click.Group):
    """A command with sub-commands. Its own options have defaults in ``[cli:NAME]``, too."""


class ConfiguredDefaults(UserDict[str, Any]):
    """The defaults of a command in ``.torchxconfig``, by parameter; read at the first access.

    Args:
        command: The command.
        ctx: A context for error messages.
    """

    def __init__(self, command: click.Command, ctx: click.Context) -> None:
        self._command = command
        self._ctx = ctx

    @functools.cached_property
    def data(self) -> dict[str, Any]:  # type: ignore[override]
        """The values, which all methods of the base class use."""
        return dict(_configured_values(self._command, self._ctx))


def option_keys(command: click.Command) -> dict[str, click.Option]:
    """Return the options by the keys that the section ``[cli:NAME]`` may have for them."""
    return {
        spelling.lstrip("-").replace("-", "_"): param
        for param in command.params
        if isinstance(param, click.Option)
        for spelling in (param.name or "", *param.opts)
    }


def long_key(option: click.Option) -> str:
    """Return the key that stands for an option in lists of keys."""
    long = (name for name in option.opts if name.startswith("--"))
    return next(long, option.opts[0]).lstrip("-").replace("-", "_")


def _configured_values(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each option that the configuration files set."""
    section = f"cli:{command.name}"
    options = option_keys(command)
    names = sorted(long_key(option) for option in dict.fromkeys(options.values()))
    for key, value in get_cli_defaults(command.name or "").items():
        if isinstance(command, Command) and key in command.extra_keys:
            continue
        param = options.get(key.replace("-", "_"))
        if param is None:
            import logging

            logging.getLogger(__name__).warning(
                "[%s] %s: torchx %s has no such option;%s",
                section,
                key,
                command.name,
                nearest(key, names) or f" options: {', '.join(names)}",
            )
            continue
        try:
            converted = param.type.convert(value, param, ctx)
        except click.BadParameter as e:
            raise ConfigError(f"[{section}] {key}: {e.message.rstrip('.')}") from None
        yield param.name or "", (converted,) if param.multiple else converted


# -- options and arguments


def options_as(
    parameter: str, options: Iterable[Callable[[F], F]], take: Callable[[dict[str, Any]], object]
) -> Callable[[F], F]:
    """Return a decorator that adds options whose values the command receives as one object.

    Args:
        parameter: The parameter of the command for the object.
        options: Decorators that add one option each.
        take: Removes the options' values from the arguments of the command; returns the object.
    """

    def add(function: F) -> F:
        @functools.wraps(function)
        def with_options(*args: Any, **values: Any) -> Any:
            return function(*args, **{parameter: take(values)}, **values)

        for option in reversed(list(options)):
            with_options = option(with_options)
        return with_options  # type: ignore[return-value]

    return add


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


def scheduler_option(help_text: str) -> Callable[[F], F]:
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
        "app_handle", metavar="HANDLE", callback=_resolved, shell_complete=complete_apps
    )(function)


def handles_argument(*, required: bool) -> Callable[[F], F]:
    """Return a decorator that adds HANDLE..., the handles or short names of several apps."""
    return click.argument(
        "app_handles",
        metavar="HANDLE..." if required else "[HANDLE]...",
        nargs=-1,
        required=required,
        callback=_resolved,
        shell_complete=complete_apps,
    )


def _resolved(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the handle or the handles of the texts on the command line."""
    if ctx.resilient_parsing:
        return value
    from torchx_cli.arguments.handles import resolve_handles

    if param.nargs == -1:
        return resolve_handles(value)
    if value.startswith("-"):  # the command accepts unknown options after the handle
        raise click.NoSuchOption(value, ctx=ctx)
    return resolve_handles([value])[0]


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


# -- options that are a time


def parse_when(text: str, now: datetime | None = None) -> datetime:
    """Return a point in time, as local time without a time zone.

    Args:
        text: ISO 8601 (local time unless it has a time zone), or a duration before ``now``.
        now: The reference for durations; None means the present.

    Raises:
        ValueError: The text is neither a time nor a duration.
    """
    word = text.strip()
    from torchx_kit.times import parse_duration

    with suppress(ValueError, OverflowError):
        return (now or datetime.now()) - timedelta(seconds=parse_duration(word))
    try:
        # Python 3.10 accepts neither the time zone Z nor a fraction of any length (RFC 3339).
        exact = re.sub(
            _FRACTION, lambda found: f"{found[0][:7]:0<7}", re.sub("[zZ]$", "+00:00", word)
        )
        when = datetime.fromisoformat(exact)
        return when.astimezone().replace(tzinfo=None) if when.tzinfo else when
    except (ValueError, OverflowError):
        raise ValueError(
            f"'{text}' is not a time; write 10m (ago), 2026-11-21 or 2026-11-21T10:00:00"
        ) from None


def _converter(parse: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Return the type of an option; values that are not text are already converted."""

    def convert(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except ValueError as e:
            raise click.BadParameter(str(e)) from None

    return convert


def duration_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds a duration option; the command receives seconds, or None."""
    from torchx_kit.times import parse_duration

    return click.option(*names, type=_converter(parse_duration), metavar="TIME", **settings)


def when_option(*names: str, **settings: Any) -> Callable[[F], F]:
    """Return a decorator that adds a time option; the command receives a datetime, or None."""
    return click.option(*names, type=_converter(parse_when), metavar="TIME", **settings)
