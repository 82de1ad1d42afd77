"""Prints the scripts of the shells, and the completions of a command line for these scripts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from torchx_cli.completion.line import kept_prefix, split_line
from torchx_cli.completion.scripts import SCRIPTS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Name of the variable that turns the command into a request for completions.
ENV_COMPLETE = "_TORCHX_COMPLETE"

#: For each type of click's ``CompletionItem``, the kind of line that the scripts read.
_KINDS = {"plain": "word", "file": "files", "dir": "dirs"}
#: Words without characters that a shell interprets. Names of apps come from schedulers, and a name
#: such as ``$(reboot)`` must not get into a command line.
_PLAIN = re.compile(r"[\w@%+=:,./-]+")


def answer(group: click.Group, arguments: Sequence[str]) -> None:
    """Print the script of a shell, or the completions that a script requests.

    Args:
        group: The command.
        arguments: The arguments of this process. For zsh and fish, these are the words of the line;
            bash passes the line in variables.
    """
    shell, _, wants_script = os.environ.get(ENV_COMPLETE, "").partition("_")
    if shell not in SCRIPTS:
        raise click.UsageError(
            f"{ENV_COMPLETE}={os.environ.get(ENV_COMPLETE)}: use bash_source, zsh_source or"
            " fish_source"
        )
    if wants_script:
        sys.stdout.write(SCRIPTS[shell])
        return
    cut = 0
    if shell == "bash":
        words, last = split_line(_bash_line())
        words = words[1:]
        cut = kept_prefix(last, os.environ.get("_TORCHX_WORDBREAKS", ""))
    else:
        *words, last = arguments or [""]
    items = _unique(find_completions(group, words, last))
    lines = [_line(item, cut) for item in items if _is_safe(item)]
    sys.stdout.write("".join(lines))


def _bash_line() -> str:
    line = os.environ.get("COMP_LINE", "")
    return line[: int(os.environ.get("COMP_POINT") or len(line))]


def _is_safe(item: CompletionItem) -> bool:
    return item.type in ("file", "dir", "open") or bool(_PLAIN.fullmatch(str(item.value)))


def _line(item: CompletionItem, cut: int) -> str:
    help_text = " ".join((item.help or "").split())
    return f"{_KINDS.get(item.type, item.type)}\t{str(item.value)[cut:]}\t{help_text}\n"


def _unique(items: Iterable[CompletionItem]) -> list[CompletionItem]:
    return list({(item.type, item.value): item for item in items}.values())


@dataclass
class _State:
    """The parsed words before the word to complete.

    Attributes:
        ctx: The context of the command that the words select; ``ctx.params`` has the values of the
            command's options.
        pending: The option whose value is the last word, or None.
        positional: The positional words so far.
        ended: Whether only positional words may follow.
    """

    ctx: click.Context
    pending: click.Option | None = None
    positional: list[str] = field(default_factory=list)
    ended: bool = False


def find_completions(
    group: click.Group, words: Sequence[str], last: str
) -> Iterator[CompletionItem]:
    """Yield the words that may replace the last word of a command line.

    Args:
        group: The command.
        words: The complete words after the name of the command.
        last: The word to complete, which may be empty.
    """
    state = _read(_context(group, "torchx"), list(words))
    if state is None:
        return
    ctx, command = state.ctx, state.ctx.command
    if state.pending is not None:
        yield from _values(ctx, state.pending, last)
        return
    if isinstance(command, click.Group) and not last.startswith("-"):
        yield from command.shell_complete(ctx, last)
        return
    if last.startswith("-") and not state.ended:
        name, equals, value = last.partition("=")
        option = _options(command).get(_key(name)) if equals else None
        if option is not None:
            yield from _with_prefix(f"{name}=", _values(ctx, option, value))
        else:
            yield from _option_names(ctx, last)
        return
    argument = _argument(command, len(state.positional))
    if argument is not None:
        ctx.params[argument.name or ""] = tuple(state.positional)
        yield from _values(ctx, argument, last)


def _context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    settings: Any = {**command.context_settings, "resilient_parsing": True}
    return click.Context(command, parent, name, **settings)


def _read(ctx: click.Context, words: list[str]) -> _State | None:
    """Parse the words; return None if they select a command that is missing or broken."""
    command = ctx.command
    options = _options(command)
    state = _State(ctx)
    for number, word in enumerate(words):
        if state.pending is not None:
            _add(ctx, state.pending, word)
            state.pending = None
        elif state.ended or word == "-" or not word.startswith("-"):
            if isinstance(command, click.Group):
                return _enter(ctx, word, words[number + 1 :])
            state.positional.append(word)
            if not ctx.allow_interspersed_args:
                state.positional += words[number + 1 :]
                state.ended = True
                break
        elif word == "--":
            state.ended = True
        else:
            name, equals, value = word.partition("=")
            option = options.get(_key(name))
            if option is None:
                continue
            if option.is_flag or option.count:
                _add(ctx, option, "")
            elif equals:
                _add(ctx, option, value)
            else:
                state.pending = option
    return state


def _enter(ctx: click.Context, name: str, rest: list[str]) -> _State | None:
    """Parse the words after the name of a sub-command."""
    group: Any = ctx.command
    _select_profile(ctx)
    try:
        command = group.get_command(ctx, name)
    except Exception:  # a broken command has no completions
        return None
    if command is None:
        return None
    return _read(_context(command, name, ctx), rest)


def _select_profile(ctx: click.Context) -> None:
    given = ctx.params.get("profile")
    if given:
        from torchx_runner.config.profiles import select_profile

        select_profile(given[-1])


def _add(ctx: click.Context, option: click.Option, value: str) -> None:
    name = option.name or ""
    ctx.params[name] = (*ctx.params.get(name, ()), value)


def _key(name: str) -> str:
    """Return an option with dashes, as click compares options."""
    return name.replace("_", "-")


def _options(command: click.Command) -> dict[str, click.Option]:
    return {
        _key(opt): param
        for param in command.params
        if isinstance(param, click.Option)
        for opt in (*param.opts, *param.secondary_opts)
    }


def _argument(command: click.Command, index: int) -> click.Argument | None:
    """Return the argument to which the positional word with this index belongs, or None."""
    for param in command.params:
        if isinstance(param, click.Argument):
            if param.nargs == -1 or index < param.nargs:
                return param
            index -= param.nargs
    return None


def _option_names(ctx: click.Context, last: str) -> Iterator[CompletionItem]:
    """Yield the options that may follow, without used options that must not be repeated."""
    from click.shell_completion import CompletionItem

    for param in ctx.command.get_params(ctx):
        if not isinstance(param, click.Option) or param.hidden:
            continue
        repeats = param.multiple and not getattr(param, "single_value", False)
        if param.name in ctx.params and not repeats and not param.count:
            continue
        for opt in (*param.opts, *param.secondary_opts):
            if _key(opt).startswith(_key(last)):
                yield CompletionItem(opt, help=(param.help or "").partition(".  ")[0])


def _values(ctx: click.Context, param: click.Parameter, last: str) -> Iterator[CompletionItem]:
    try:
        yield from param.shell_complete(ctx, last)
    except Exception:  # no completion is better than a traceback in the shell
        return


def _with_prefix(prefix: str, items: Iterable[CompletionItem]) -> Iterator[CompletionItem]:
    for item in items:
        if item.type in ("plain", "part"):
            item.value = f"{prefix}{item.value}"
        yield item
