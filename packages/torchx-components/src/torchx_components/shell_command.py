"""Command lines for ``sh -c`` whose arguments reach the program unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote

from torchx_specs.model.templates import is_template

# Commands of the shell itself, which `exec` cannot run.
_BUILTIN = frozenset((
    ".", ":", "[", "alias", "bg", "break", "builtin", "cd", "command", "continue", "declare",
    "echo", "eval", "exec", "exit", "export", "false", "fg", "getopts", "hash", "jobs", "kill",
    "let", "local", "printf", "pwd", "read", "readonly", "return", "set", "shift", "shopt",
    "source", "test", "times", "trap", "true", "type", "typeset", "ulimit", "umask", "unalias",
    "unset", "wait",
))  # fmt: skip


class Unquoted(str):
    """A part of a command line that the shell interprets, so it is not quoted."""

    __slots__ = ()


def shell_command(argv: Iterable[str]) -> str:
    """Return a command line for ``sh -c`` that runs ``argv``.

    The scheduler later substitutes macros in the whole line. The result must be the same as if it
    substituted them in each argument: ``$$`` becomes ``$`` in an argument with a macro, and stays
    ``$$`` in an argument without one.

    >>> shell_command(["echo", "a b", "$HOME", Unquoted("$HOME")])
    "echo 'a b' '$HOME' $HOME"
    >>> shell_command(["echo", "$$", "${app_id}"])
    "echo '$$$$' '${app_id}'"
    """
    arguments = list(argv)
    if any(is_template(argument) for argument in arguments):
        arguments = [_escape_dollars(argument) for argument in arguments]
    return " ".join(
        argument if isinstance(argument, Unquoted) else quote(argument) for argument in arguments
    )


def program_command(argv: Sequence[str]) -> str:
    """Return a command line for ``sh -c`` that replaces the shell by the program ``argv``.

    So signals for the shell arrive at the program. A command of the shell stays in the shell.

    >>> program_command(["sleep", "9"]), program_command(["exit", "3"])
    ('exec sleep 9', 'exit 3')
    """
    command = shell_command(argv)
    return f"exec {command}" if argv and argv[0] not in _BUILTIN else command


def _escape_dollars(argument: str) -> str:
    """Double each ``$$`` in an argument without a macro; the substitution halves it again."""
    if isinstance(argument, Unquoted) or is_template(argument):
        return argument
    return argument.replace("$$", "$$$$")
