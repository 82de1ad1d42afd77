"""Splits a command line of bash into words."""

from __future__ import annotations

import re

from click.shell_completion import split_arg_string


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
    separators = "".join(re.escape(c) for c in breaks if c in ":=@")
    if not separators:
        return 0
    found = [match.end() for match in re.finditer(f"[{separators}]", word)]
    return found[-1] if found else 0
