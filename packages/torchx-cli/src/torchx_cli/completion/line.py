"""Splits a command line of bash into words."""

from __future__ import annotations

import re

_QUOTES = "'\""


def split_line(line: str) -> tuple[list[str], str]:
    r"""Return the complete words of a line, and the word at its end, without quotes.

    >>> split_line("torchx run 'my file.py' --na")
    (['torchx', 'run', 'my file.py'], '--na')
    >>> split_line("torchx run a\\ ")
    (['torchx', 'run'], 'a ')

    Args:
        line: The line up to the cursor; a quotation may be unfinished.
    """
    words: list[str] = []
    word = ""
    started = False
    quote = ""
    position = 0
    while position < len(line):
        character = line[position]
        position += 1
        if quote == "'" or (quote and character != "\\"):
            if character == quote:
                quote = ""
            else:
                word += character
        elif character == "\\":
            word += line[position : position + 1]
            position += 1
            started = True
        elif character in _QUOTES:
            quote, started = character, True
        elif character.isspace():
            if started or word:
                words.append(word)
            word, started = "", False
        else:
            word += character
    return words, word


def kept_prefix(word: str, breaks: str) -> int:
    """Return the length of the part of the last word that bash does not replace.

    Args:
        word: The last word.
        breaks: The value of ``COMP_WORDBREAKS``.
    """
    separators = "".join(re.escape(c) for c in breaks if c in ":=@")
    if not separators:
        return 0
    found = [match.end() for match in re.finditer(f"[{separators}]", word)]
    return found[-1] if found else 0
