"""Random ids of lower-case letters and digits, without vowels, so that they form no words."""

from __future__ import annotations

import os

START_CANDIDATES = "bcdfghjklmnpqrstvwxz"
END_CANDIDATES = START_CANDIDATES + "012345679"


def make_unique(name: str, string_length: int = 0) -> str:
    """Return ``<name>-<random id>``.

    Args:
        name: The text before the id.
        string_length: Maximum length of the id, in characters; 0 means all 64 bits.
    """
    return f"{name}-{random_id(string_length) if string_length > 0 else random_id()}"


def random_uint64() -> int:
    """Return 64 random bits of the operating system, which :func:`random.seed` does not affect."""
    return int.from_bytes(os.urandom(8), "big")


def random_id(max_length: int | None = None) -> str:
    """Return 64 random bits as at most 14 characters, of which the first is a letter.

    One id in 60,000 has fewer than 11 characters, because leading zeros are omitted.

    Args:
        max_length: Maximum length of the id, in characters; None means all 64 bits.
    """
    value = random_uint64()
    out = ""
    alphabet = START_CANDIDATES
    while value > 0:
        if max_length is not None and len(out) >= max_length:
            break
        value, digit = divmod(value, len(alphabet))
        out += alphabet[digit]
        alphabet = END_CANDIDATES
    return out
