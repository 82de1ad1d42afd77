"""The notation for lists and dicts in one string: ``a,b`` and ``k=v,k2=v2``.

Quotes around a whole item, key or value protect what is in them. A quote anywhere else is an
ordinary character, so ``msg=it's`` needs no escape.
"""

from __future__ import annotations

_QUOTES = "'\""


def split_list(text: str) -> list[str]:
    """Splits ``a,b`` at its commas.

    Blanks around items don't count, nor does one comma at the end.

    >>> split_list('a, "b,c" ,')
    ['a', 'b,c']
    """
    quoted = _quoted_spans(text, ",")
    items = []
    start = 0
    for i in (*_positions(text, ",", quoted), len(text)):
        items.append(_token(text, start, i, quoted))
        start = i + 1
    if not text[_last_comma_end(text, quoted) :].strip():
        items.pop()
    return items


def split_pairs(text: str) -> list[tuple[str, str]]:
    """Splits ``k=v,k2=v2``; either ``,`` or ``;`` separates pairs.

    A value may contain both: the last one before the next ``=`` is the separator. An ``=`` that no
    separator precedes belongs to the value.

    >>> split_pairs("FOO=a,b,BAR=x=y;BAZ=")
    [('FOO', 'a,b'), ('BAR', 'x=y'), ('BAZ', '')]

    Raises:
        ValueError: no ``=``, or nothing before one
    """
    if not text.strip():
        return []
    quoted = _quoted_spans(text, ",;=")
    equals = _positions(text, "=", quoted)
    if not equals:
        raise ValueError(f"'{text}' is not of the form key=value,key2=value2")
    separators = _positions(text, ",;", quoted)
    pairs = []
    key, value_start, last = _token(text, 0, equals[0], quoted), equals[0] + 1, equals[0]
    for equal in equals[1:]:
        before = [s for s in separators if last < s < equal]
        last = equal
        if before:
            pairs.append((key, _token(text, value_start, before[-1], quoted)))
            key, value_start = _token(text, before[-1] + 1, equal, quoted), equal + 1
    pairs.append((key, _token(text, value_start, len(text), quoted)))
    if not all(key for key, _ in pairs):
        raise ValueError(f"'{text}' has an '=' with no key before it (quote a value that has one)")
    return pairs


def _quoted_spans(text: str, delimiters: str) -> list[tuple[int, int]]:
    """Finds quotes that wrap a whole token: positions of the opening and of the closing one."""
    if not any(quote in text for quote in _QUOTES):
        return []
    spans = []
    at_start = True
    i = 0
    while i < len(text):
        c = text[i]
        if at_start and c in _QUOTES:
            end = _closing_quote(text, i, delimiters)
            if end:
                spans.append((i, end))
                i = end + 1
                at_start = False
                continue
        if not c.isspace():
            at_start = c in delimiters
        i += 1
    return spans


def _closing_quote(text: str, start: int, delimiters: str) -> int:
    """Returns where the quote opened at ``start`` closes a token, or 0."""
    end = text.find(text[start], start + 1)
    while end > 0:
        rest = text[end + 1 :].lstrip()
        if not rest or rest[0] in delimiters:
            return end
        end = text.find(text[start], end + 1)
    return 0


def _positions(text: str, characters: str, quoted: list[tuple[int, int]]) -> list[int]:
    return [
        i
        for i, c in enumerate(text)
        if c in characters and not any(start < i < end for start, end in quoted)
    ]


def _last_comma_end(text: str, quoted: list[tuple[int, int]]) -> int:
    commas = _positions(text, ",", quoted)
    return commas[-1] + 1 if commas else 0


def _token(text: str, start: int, end: int, quoted: list[tuple[int, int]]) -> str:
    token = text[start:end].strip()
    offset = start + len(text[start:end]) - len(text[start:end].lstrip())
    if (offset, offset + len(token) - 1) in quoted:
        return token[1:-1]
    return token
