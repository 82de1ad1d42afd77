"""The notation of booleans, lists and dicts in text.

Component arguments, scheduler options (``-cfg`` and ``.torchxconfig``), mounts and trackers use
this notation:

- a boolean is ``true``, ``yes``, ``on`` or ``1``, or ``false``, ``no``, ``off`` or ``0``, in any
  letter case
- a list is ``a,b``
- a dict is ``k=v,k2=v2``

Quotes around a whole item, key or value protect the separators inside. A quote anywhere else is an
ordinary character, so ``msg=it's`` needs no escape.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from torchx_specs.model.constants import MASK

TRUE_VALUES = frozenset({"true", "1", "yes", "on"})
FALSE_VALUES = frozenset({"false", "0", "no", "off"})
_LONGEST_NAME = 32


def parse_bool(text: str) -> bool:
    """Return the boolean that ``text`` names; raise ValueError if it names none."""
    word = text.strip().lower()
    if word in TRUE_VALUES or word in FALSE_VALUES:
        return word in TRUE_VALUES
    raise ValueError(f"'{text}' is not a bool: use true, false, yes, no, on, off, 1 or 0")


def split_list(text: str, separators: str = ",") -> list[str]:
    """Split ``a,b`` into its items.

    Blanks around items and one separator at the end are ignored. Scheduler options also allow
    ``;`` as a separator.

    >>> split_list('a, "b,c" ,')
    ['a', 'b,c']
    """
    ends = [*unquoted_positions(text, separators), len(text)]
    starts = [0, *(end + 1 for end in ends)]
    items = [text[start:end] for start, end in zip(starts, ends, strict=False)]
    if not items[-1].strip():
        items.pop()
    return [_without_quotes(item) for item in items]


def _is_word(key: str) -> bool:
    return not re.search(r"\s", key)


def split_pairs(
    text: str, equals: str = "=", is_key: Callable[[str], bool] = _is_word
) -> list[tuple[str, str]]:
    """Split ``k=v,k2=v2`` into keys and values; ``;`` is a separator, too.

    A value may contain separators: only the last separator before the next ``key=`` ends the value.
    A value may also contain ``=``. But if a separator and a possible key precede the ``=``, this is
    the next key. Dicts in scheduler options have ``:`` instead of ``=``.

    >>> split_pairs("FOO=a,b,BAR=x=y;BAZ=")
    [('FOO', 'a,b'), ('BAR', 'x=y'), ('BAZ', '')]

    Args:
        text: The pairs.
        equals: The character between a key and its value.
        is_key: Returns whether a text without quotes can be a key; by default, if it has no blanks.

    Raises:
        ValueError: The text has no ``=``, or an ``=`` without a key before it.
    """
    if not text.strip():
        return []
    pairs: list[list[str]] = []
    start, separator = 0, -1
    for i in unquoted_positions(text, f"{equals},;"):
        if text[i] in ",;":
            separator = i
            continue
        key = text[separator + 1 : i].strip() if pairs else text[:i].strip()
        if not pairs or (separator >= start and (key[:1] in "'\"" or is_key(key))):
            if pairs:
                pairs[-1][1] = text[start:separator]
            pairs.append([key, ""])
            start = i + 1
        separator = -1
    if not pairs:
        form = f"key{equals}value,key2{equals}value2"
        raise ValueError(f"'{_without_values(text)}' is not of the form {form}")
    pairs[-1][1] = text[start:]
    split = [(_without_quotes(key), _without_quotes(value)) for key, value in pairs]
    if not all(key for key, _ in split):
        problem = f"a '{equals}' without a key before it (quote a value that contains one)"
        raise ValueError(f"'{_without_values(text)}' has {problem}")
    return split


def _without_values(text: str) -> str:
    """Return malformed pairs for an error message; the values may be secrets and are masked."""
    name, separator, value = re.split("([:=])", f"{text}=", maxsplit=1)
    shown = name if len(name) <= _LONGEST_NAME else MASK
    return f"{shown}{separator}{MASK}" if value else shown


def unquoted_positions(text: str, characters: str) -> list[int]:
    """Return the positions of ``characters`` in ``text`` that no quotes protect."""
    quoted: list[tuple[int, int]] = []
    if "'" in text or '"' in text:
        # Quotes count only if they are the first and the last character of an item, key or value.
        token = rf"(?:^|(?<=[{characters}]))\s*(['\"]).*?\1(?=\s*(?:[{characters}]|\Z))"
        quoted = [match.span() for match in re.finditer(token, text, re.DOTALL)]
    return [
        i
        for i, c in enumerate(text)
        if c in characters and not any(start <= i < end for start, end in quoted)
    ]


def _without_quotes(token: str) -> str:
    token = token.strip()
    if len(token) > 1 and token[0] in "'\"" and token[-1] == token[0]:
        return token[1:-1]
    return token
