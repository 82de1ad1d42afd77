"""Prints the scripts of the shells, and the completions of a command line for these scripts."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, split_arg_string

from torchx_cli.completion.values import LAST_WORD

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
    if shell not in ("bash", "zsh", "fish"):
        raise click.UsageError(
            f"{ENV_COMPLETE}={os.environ.get(ENV_COMPLETE)}: use bash_source, zsh_source or"
            " fish_source"
        )
    if wants_script:
        from torchx_cli.completion.scripts import SCRIPTS

        sys.stdout.write(SCRIPTS[shell])
        return
    cut = 0
    if shell == "bash":
        line = os.environ.get("COMP_LINE", "")
        words, last = split_line(line[: int(os.environ.get("COMP_POINT") or len(line))])
        words = words[1:]
        cut = kept_prefix(last, os.environ.get("_TORCHX_WORDBREAKS", ""))
    else:
        *words, last = arguments or [""]
    items = find_completions(group, words, last)
    lines = [_line(item, cut) for item in items if _is_safe(item)]
    sys.stdout.write("".join(dict.fromkeys(lines)))


def find_completions(
    group: click.Group, words: Sequence[str], last: str
) -> list[CompletionItem[str]]:
    """Return the words that may replace the last word of a command line.

    Args:
        group: The command.
        words: The complete words after the name of the command.
        last: The word to complete, which may be empty.
    """
    root = click.Context(group)
    root.meta[LAST_WORD] = last
    completer = ShellComplete(group, {"parent": root}, "torchx", ENV_COMPLETE)
    with root:
        try:
            items = completer.get_completions([*words], last)
        except Exception:  # no completion is better than a traceback in the shell
            return []
    name, equals, _ = last.partition("=")
    if equals and name.startswith("-"):  # click completes the value of an option
        for item in items:
            item.value = f"{name}={item.value}"
    return items


def split_line(line: str) -> tuple[list[str], str]:
    r"""Return the complete words of a line, and the word at its end, without quotes.

    >>> split_line("torchx run 'my file.py' --na")
    (['torchx', 'run', 'my file.py'], '--na')
    >>> split_line("torchx run a\\ ")
    (['torchx', 'run'], 'a ')

    Args:
        line: The line up to the cursor; a quotation may be unfinished.
    """
    *words, last = split_arg_string(f"{line}x")  # so that a blank at the end begins a word
    return words, last[:-1]


def kept_prefix(word: str, breaks: str) -> int:
    """Return the length of the part of the last word that bash does not replace.

    Args:
        word: The last word.
        breaks: The value of ``COMP_WORDBREAKS``.
    """
    return max((word.rfind(c) + 1 for c in ":=@" if c in breaks), default=0)


def _is_safe(item: CompletionItem[str]) -> bool:
    return item.type in ("file", "dir", "open") or bool(_PLAIN.fullmatch(item.value))


def _line(item: CompletionItem[str], cut: int) -> str:
    help_text = " ".join((item.help or "").partition(".  ")[0].split())
    return f"{_KINDS.get(item.type, item.type)}\t{item.value[cut:]}\t{help_text}\n"
