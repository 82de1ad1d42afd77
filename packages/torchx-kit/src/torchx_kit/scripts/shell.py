r"""Quoting words for shells: every word arrives byte for byte.

Two ways to write a word. :func:`quote` is for any POSIX shell and leaves bytes as they are.
:func:`quote_ascii` is for bash and gives printable ASCII only, on one line, whatever the word holds
(``$'caf\303\251\012'``): for scripts that pass through systems that rewrite line ends, refuse
control characters or guess encodings.

Bytes that are no UTF-8 stand in ``str`` as surrogate escapes, as in :data:`os.environ` and
:data:`sys.argv`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from torchx_specs.errors import RequestError

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")
_PRINTABLE = re.compile(r"[ -~]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quote(word: str) -> str:
    r"""Returns ``word`` quoted for any POSIX shell.

    >>> print(quote("it's $5"))
    'it'\''s $5'

    Raises:
        RequestError: it holds a NUL, which no process can be given
    """
    _check(word)
    if _SAFE.match(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def quote_ascii(word: str) -> str:
    r"""Returns ``word`` quoted for bash, in printable ASCII and on one line.

    >>> print(quote_ascii("plain"), quote_ascii("a b"), quote_ascii("é\n"))
    plain 'a b' $'\303\251\012'

    Raises:
        RequestError: it holds a NUL, or a lone surrogate that stands for no byte
    """
    if _PRINTABLE.match(word):
        return quote(word)
    _check(word)
    out = []
    for byte in encode(word):
        if byte in b"\\'":
            out.append("\\" + chr(byte))
        elif 32 <= byte < 127:
            out.append(chr(byte))
        else:
            out.append(f"\\{byte:03o}")
    return "$'" + "".join(out) + "'"


def quote_around(
    word: str, variables: Mapping[str, str], quoting: Callable[[str], str] = quote
) -> str:
    """Returns ``word`` quoted but for the texts in ``variables``, which become shell code.

    For values that only the shell knows: write a placeholder into the word, and what it stands for
    in the shell here.

    >>> print(quote_around("id=<ID> $x", {"<ID>": '"$SLURM_JOB_ID"'}))
    id="$SLURM_JOB_ID"' $x'

    Args:
        word: the word
        variables: placeholder to shell code; the code quotes itself
        quoting: :func:`quote` or :func:`quote_ascii`
    """
    if not any(placeholder in word for placeholder in variables):
        return quoting(word)
    by_length = sorted(variables, key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, by_length)) + ")", word)
    return "".join(variables[p] if p in variables else quoting(p) for p in parts if p)


def join(words: Iterable[str], quoting: Callable[[str], str] = quote) -> str:
    """Returns a command line of ``words``; :func:`shlex.split` undoes it for :func:`quote`."""
    return " ".join(map(quoting, words))


def exports(variables: Mapping[str, str], quoting: Callable[[str], str] = quote) -> list[str]:
    """Returns one ``export NAME=value`` line per variable.

    Raises:
        RequestError: a name that a shell cannot export; pass those as words to ``env`` instead
    """
    lines = []
    for name, value in variables.items():
        if not is_variable_name(name):
            raise RequestError(
                f"environment variable '{name}': a shell cannot export that name;"
                " use letters, digits and _, not beginning with a digit"
            )
        lines.append(f"export {name}={quoting(value)}")
    return lines


def is_variable_name(name: str) -> bool:
    """Returns True if a shell can export a variable of that name."""
    return _VARIABLE.match(name) is not None


def encode(word: str) -> bytes:
    """Returns the bytes that a process gets for ``word``.

    Raises:
        RequestError: it holds a lone surrogate that stands for no byte
    """
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as e:
        raise RequestError(
            f"{word!r} cannot be passed to a process: {word[e.start]!r} stands for no byte"
        ) from None


def _check(word: str) -> None:
    if "\0" in word:
        raise RequestError(f"{word!r} cannot be passed to a process: it holds a NUL character")
