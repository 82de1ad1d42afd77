"""Command lines for ``sh -c`` whose arguments reach the program unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from torchx_specs.model.templates import is_template


class Unquoted(str):
    """A part of a command line that the shell interprets, so it is not quoted."""

    __slots__ = ()


def shell_command(argv: Iterable[str]) -> str:
    """Return a command line for ``sh -c`` that runs ``argv`` after the macros are substituted.

    Macros are substituted in the whole line, but must have the same effect as in each argument
    alone: ``$$`` becomes ``$`` in an argument with a macro, and stays ``$$`` in others.

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


def _escape_dollars(argument: str) -> str:
    """Double each ``$$`` of an argument without a macro, which the substitution halves."""
    if isinstance(argument, Unquoted) or is_template(argument):
        return argument
    return argument.replace("$$", "$$$$")
