r"""Shell quoting: a program receives every argument byte for byte.

:func:`quote` is for any POSIX shell and keeps bytes as they are. :func:`quote_ascii` is for bash,
and returns one line of printable ASCII for any argument (``$'caf\303\251\012'``). Use
:func:`quote_ascii` for scripts that pass through systems that change line ends, refuse control
characters or guess encodings.

Bytes that are not UTF-8 are surrogate escapes, as in :data:`os.environ` and :data:`sys.argv`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from torchx_specs.errors import RequestError

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+\Z")
_PRINTABLE = re.compile(r"[ -~]*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def quote(word: str) -> str:
    r"""Return an argument quoted for any POSIX shell.

    >>> print(quote("it's $5"))
    'it'\''s $5'

    Raises:
        RequestError: The argument has a NUL character, which cannot be passed to a process.
    """
    _check(word)
    if _SAFE.match(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def quote_ascii(word: str) -> str:
    r"""Return an argument quoted for bash, as one line of printable ASCII.

    >>> print(quote_ascii("plain"), quote_ascii("a b"), quote_ascii("é\n"))
    plain 'a b' $'\303\251\012'

    Raises:
        RequestError: The argument has a NUL character, or a surrogate that stands for no byte.
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
    """Return an argument quoted, with placeholders replaced by shell code.

    A placeholder stands for a value that only the running script knows.

    >>> print(quote_around("id=<ID> $x", {"<ID>": '"$SLURM_JOB_ID"'}))
    id="$SLURM_JOB_ID"' $x'

    Args:
        word: The argument.
        variables: Maps each placeholder to its shell code, which includes its own quotes.
        quoting: :func:`quote` or :func:`quote_ascii`.
    """
    if not any(placeholder in word for placeholder in variables):
        return quoting(word)
    by_length = sorted(variables, key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, by_length)) + ")", word)
    return "".join(variables[p] if p in variables else quoting(p) for p in parts if p)


def join(argv: Iterable[str], quoting: Callable[[str], str] = quote) -> str:
    """Return a command line; with :func:`quote`, :func:`shlex.split` turns it back into argv.

    Args:
        argv: The arguments.
        quoting: :func:`quote` or :func:`quote_ascii`.
    """
    return " ".join(map(quoting, argv))


def is_variable_name(name: str) -> bool:
    """Return True if a shell can export a variable of this name."""
    return _VARIABLE.match(name) is not None


def encode(word: str) -> bytes:
    """Return the bytes that a process receives for an argument.

    Raises:
        RequestError: The argument has a surrogate that stands for no byte.
    """
    try:
        return word.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as e:
        raise RequestError(
            f"{word!r} cannot be passed to a process: {word[e.start]!r} is not a byte"
        ) from None


def _check(word: str) -> None:
    if "\0" in word:
        raise RequestError(f"{word!r} cannot be passed to a process: it contains a NUL character")
