"""The classes of sub-commands whose options have defaults in ``.torchxconfig``."""

from __future__ import annotations

import functools
from collections import UserDict
from collections.abc import Iterable, Iterator
from typing import Any

import click
from click.core import ParameterSource

from torchx_cli.exit_codes import ARGV_KEY
from torchx_runner.config.api import get_cli_defaults
from torchx_specs.errors import ConfigError, nearest


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
        try:
            parser._long_opt.update(parser._short_opt)
        except AttributeError:
            pass  # another click version lacks these attributes: parsing is slower, but correct
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
