"""Words that become one line for a shell, and reach the program as they were."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from torchx_specs.model.templates import is_template


class Unquoted(str):
    """A word that the shell is to interpret: it goes into the line as it is."""

    __slots__ = ()


def joined(words: Iterable[str]) -> str:
    """Returns a line for ``sh -c``, whose words are ``words`` once macros are filled in.

    Each word is filled in as if it were an argument of its own: in one that has a macro ``$$``
    means ``$``, in any other it means ``$$``, whatever its neighbours have.

    >>> joined(["echo", "a b", "$HOME", Unquoted("$HOME")])
    "echo 'a b' '$HOME' $HOME"
    >>> joined(["echo", "$$", "${app_id}"])
    "echo '$$$$' '${app_id}'"
    """
    given = list(words)
    if any(is_template(word) for word in given):
        given = [_kept(word) for word in given]
    return " ".join(word if isinstance(word, Unquoted) else quote(word) for word in given)


def _kept(word: str) -> str:
    """Doubles what filling in macros will halve, in a word that has none."""
    if isinstance(word, Unquoted) or is_template(word):
        return word
    return word.replace("$$", "$$$$")
