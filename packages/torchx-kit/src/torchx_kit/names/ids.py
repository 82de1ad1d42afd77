"""Random ids of lower-case letters and digits, without vowels, so that they form no words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import takewhile

START_CANDIDATES = "bcdfghjklmnpqrstvwxz"
END_CANDIDATES = START_CANDIDATES + "012345679"
#: Regular expression for almost all results of :func:`random_id` without a maximum length. With it,
#: schedulers find the app id at the beginning of the name of a job.
RANDOM_ID = f"[{START_CANDIDATES}][{START_CANDIDATES}0-9]{{10,13}}"


def make_unique(name: str, string_length: int = 0) -> str:
    """Return ``<name>-<random id>``.

    Args:
        name: The text before the id.
        string_length: Maximum length of the id, in characters; 0 means no maximum.
    """
    return f"{name}-{random_id(string_length) if string_length > 0 else random_id()}"


def random_uint64() -> int:
    """Return 64 random bits of the operating system, which :func:`random.seed` does not affect."""
    return int.from_bytes(os.urandom(8), "big")


def random_id(max_length: int | None = None) -> str:
    """Return 64 random bits as at most 14 characters, of which the first is a letter.

    One id in 60,000 has fewer than 11 characters, because leading zeros are omitted.

    Args:
        max_length: Maximum length of the id, in characters; a shorter id has fewer random bits.
            None means no maximum.
    """
    return as_letters(random_uint64(), max_length)


def as_letters(value: int, max_length: int | None = None) -> str:
    """Return a number as letters and digits, of which the first is a letter.

    Args:
        value: The number.
        max_length: Maximum length of the result, in characters; None means no maximum.
    """
    out = ""
    alphabet = START_CANDIDATES
    while value > 0 and (max_length is None or len(out) < max_length):
        value, digit = divmod(value, len(alphabet))
        out += alphabet[digit]
        alphabet = END_CANDIDATES
    return out


def common_start(names: Sequence[str]) -> str:
    """Return the longest common prefix of the names, without separators at the end.

    >>> common_start(["train-x-9-0", "train-x-10-0"])
    'train-x'
    """
    first, last = min(names), max(names)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(pair[0] for pair in same).rstrip("-_. ")
