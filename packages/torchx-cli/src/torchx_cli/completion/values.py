"""Completes values: schedulers, their options, apps, states, profiles, sections, files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchx_specs.plugins.manager import get_manager

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

#: The key of the word to complete in the metadata of a context; click splits it at "=".
LAST_WORD = "torchx.last_word"
#: The type of a completion after which the shell adds no space.
PART = "part"
#: How many of the newest submissions are searched for apps.
_MAX_SUBMISSIONS = 50


def complete_schedulers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of schedulers for shell completion, without importing any scheduler."""
    return _starting(incomplete, get_manager().schedulers().names())


def complete_profiles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the profiles of the configuration files."""
    from torchx_runner.config.api import read_configs
    from torchx_runner.config.files import profile_names

    return _starting(incomplete, profile_names(read_configs(profile="")))


def complete_sections(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the sections of the configuration files."""
    from torchx_runner.config.api import list_values

    return _starting(incomplete, dict.fromkeys(value.section for value in list_values()))


def complete_states(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the states of apps; the value may be a list, separated by commas."""
    from torchx_specs.model.status import AppState

    before, comma, last = incomplete.rpartition(",")
    given = before.upper().split(",")
    return [
        _item(f"{before}{comma}{state.name}")
        for state in AppState
        if state.name.startswith(last.upper()) and state.name not in given
    ]


def complete_directories(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete names of directories."""
    return [_item(incomplete, type="dir")]


def complete_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell complete names of files."""
    return [_item(incomplete, type="file")]


def complete_cfg(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the value of ``-cfg``, a list ``KEY=VALUE,KEY=VALUE``.

    Complete a key with the unused options of the scheduler that ``-s`` or the configuration
    selects. After ``KEY=``, complete the values of a boolean option.
    """
    from torchx_runner.config.api import get_cli_defaults, get_run_opts

    default = get_cli_defaults(ctx.info_name or "run").get("scheduler", "local_cwd")
    opts = get_run_opts(ctx.params.get("scheduler") or default)
    before, comma, last = incomplete.rpartition(",")
    prefix = f"{before}{comma}"
    key, equals, value = last.partition("=")
    if equals:
        opt = opts.get(key)
        words = ("true", "false") if opt is not None and opt.opt_type is bool else ()
        return [_item(f"{prefix}{key}={word}") for word in _starting(value, words)]
    earlier: Any = ctx.params.get(param.name or "") or ()
    used = {pair.partition("=")[0] for text in (before, *earlier) for pair in text.split(",")}
    return [
        _item(f"{prefix}{name}=", type=PART, help=opt.help)
        for name, opt in opts
        if name.startswith(key) and name not in used
    ]


def complete_apps(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return short names and handles of apps in the journal, the newest first.

    If the journal has no app for ``SCHEDULER://…``, the apps of that scheduler are listed.
    """
    from torchx_runner.submissions.journal import submissions

    given: Any = ctx.params.get(param.name or "") or ()
    items: list[CompletionItem] = []
    for number, found in enumerate(submissions(_MAX_SUBMISSIONS), 1):
        names = [f"@{number}", found.name, found.handle]
        if not incomplete:  # the list of all names and handles would be too long
            names = [f"@{number}"] if number <= _MAX_SHORT else []
            names.append(found.handle)
        help_text = f"{found.name} {found.time:%Y-%m-%d %H:%M}"
        wanted = (n for n in names if n and n.startswith(incomplete) and n not in given)
        items += [_item(name, help=help_text) for name in wanted]
    scheduler, colon, _ = incomplete.partition("://")
    if not items and colon and scheduler in get_manager().schedulers().names():
        from torchx_cli.arguments.handles import list_schedulers

        apps = list_schedulers(scheduler, _LIST_TIMEOUT).apps.get(scheduler, [])
        handles = _starting(incomplete, (app.app_handle for app in apps))
        items = [_item(handle) for handle in handles if handle not in given]
    return items


# How long to wait for a scheduler that lists its apps, in seconds.
_LIST_TIMEOUT = 1.0
# How many of the names @1, @2 … are offered if nothing is typed.
_MAX_SHORT = 3


def complete_apps_and_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the apps in the journal, and let the shell complete names of files."""
    return [*complete_apps(ctx, param, incomplete), _item(incomplete, type="file")]


def deferred_components(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return components and their options.

    The module that finds them is imported by this function, because few calls complete components.
    """
    from torchx_cli.completion.components import complete_components

    return list(complete_components(ctx, param, incomplete))


def _item(value: str, **attributes: Any) -> CompletionItem:
    from click.shell_completion import CompletionItem  # slow, and most commands complete nothing

    return CompletionItem(value, **attributes)


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
