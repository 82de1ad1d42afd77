"""What several commands take: ``-s``, ``-cfg``, ``-o``, handles, and defaults from files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchx_cli.exit_codes import WORDS
from torchx_cli.output.printing import JSON, TABLE, YAML
from torchx_runner.installed_schedulers import InstalledSchedulers, unknown_scheduler
from torchx_specs.errors import ConfigError, RequestError, nearest

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal

F = TypeVar("F", bound=Callable[..., Any])

#: The scheduler that is used if none is given.
DEFAULT_SCHEDULER = "local_cwd"


class Command(click.Command):
    """A command whose options have defaults in ``.torchxconfig``, section ``[cli:NAME]``.

    Args:
        extra_keys: keys of that section that are no options
    """

    def __init__(self, *args: Any, extra_keys: Iterable[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.extra_keys = frozenset(extra_keys)

    def make_parser(self, ctx: click.Context) -> Any:
        # click tries every word as a long option first, and looks for similar names if there is
        # none, which costs two milliseconds for a simple `-s`
        parser: Any = super().make_parser(ctx)
        try:
            parser._long_opt.update(parser._short_opt)
        except AttributeError:
            pass  # another click: slower, and right
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        if not ctx.resilient_parsing:
            defaults: Any = _Defaults(self, ctx)
            ctx.default_map = defaults
        return super().parse_args(ctx, args)


class _Defaults(Mapping[str, Any]):
    """Defaults of a command's options, read from the files when the first is asked for."""

    def __init__(self, command: Command, ctx: click.Context) -> None:
        self._command = command
        self._ctx = ctx
        self._values: dict[str, Any] | None = None

    def _load(self) -> dict[str, Any]:
        if self._values is None:
            self._values = dict(_configured(self._command, self._ctx))
        return self._values

    def __getitem__(self, name: str) -> Any:
        return self._load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())


def _long_name(option: click.Option) -> str:
    long = (name for name in option.opts if name.startswith("--"))
    return next(long, option.opts[0]).lstrip("-").replace("-", "_")


def _configured(command: Command, ctx: click.Context) -> Iterator[tuple[str, Any]]:
    """Yields the name and value of each option that the configuration files set."""
    from torchx_runner.config.api import get_cli_defaults

    section = f"cli:{command.name}"
    known = {
        spelling: param
        for param in command.params
        if isinstance(param, click.Option)
        for spelling in (
            param.name or "",
            *(opt.lstrip("-").replace("-", "_") for opt in param.opts),
        )
    }
    names = sorted(_long_name(param) for param in dict.fromkeys(known.values()))
    for key, value in get_cli_defaults(command.name or "").items():
        if key in command.extra_keys:
            continue
        param = known.get(key.replace("-", "_"))
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


def once(*names: str, **settings: Any) -> Callable[[F], F]:
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
    return once(
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
        "form",
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
        from torchx_specs.model.handles import parse_app_handle

        parse_app_handle(value)
    return value


def _checked_handles(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    return tuple(_checked_handle(ctx, param, value) for value in values)


def choose_scheduler(name: str | None) -> str:
    """Return the installed scheduler to use: the given one, else ``local_cwd``, else the only one.

    Args:
        name: The name on the command line or in the configuration.

    Raises:
        RequestError: The given scheduler is not installed, or several schedulers are installed and
            none is given.
    """
    installed = InstalledSchedulers()
    if name:
        if name not in installed:
            raise unknown_scheduler(name, installed)
        return name
    names = sorted(installed)
    if DEFAULT_SCHEDULER in names:
        return DEFAULT_SCHEDULER
    if len(names) == 1:
        return names[0]
    if not names:
        command = installed.installable.get(DEFAULT_SCHEDULER)
        raise RequestError(f"no scheduler is installed{f'; run: {command}' if command else ''}")
    raise RequestError(f"which scheduler? give -s with one of: {', '.join(names)}")


def read_cfg(runner: Runner, scheduler: str, literals: Iterable[str]) -> dict[str, CfgVal]:
    """Returns the scheduler options of some ``-cfg`` values, with what the files add.

    Raises:
        RequestError: malformed, unknown, of the wrong type, or one option with two values
    """
    cfg: dict[str, CfgVal] = {}
    for literal in literals:
        for key, value in runner.cfg_from_str(scheduler, literal).items():
            if key in cfg and cfg[key] != value:
                raise RequestError(f"-cfg {key} is given twice, as {cfg[key]} and as {value}")
            cfg[key] = value
    from torchx_runner.config import api as config

    config.apply(scheduler, cfg)
    return cfg


def complete_schedulers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns names of schedulers for the shell, importing none of them."""
    from torchx_specs.plugins.manager import get_manager

    return [name for name in sorted(get_manager().schedulers()) if name.startswith(incomplete)]


def complete_components(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Returns names of components for the shell; past the component there is nothing to offer."""
    if ctx.params.get(param.name or ""):
        return []
    try:
        from torchx_runner.components.finder import get_components

        return [name for name in sorted(get_components()) if name.startswith(incomplete)]
    except Exception:  # a shell that completes nothing is better than a traceback in it
        return []
