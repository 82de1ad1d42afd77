"""Random ids that read well, are valid wherever names are, and hold no words."""

from __future__ import annotations

import os

START_CANDIDATES = "bcdfghjklmnpqrstvwxz"
END_CANDIDATES = START_CANDIDATES + "012345679"


def make_unique(name: str, string_length: int = 0) -> str:
    """Returns ``<name>-<random id>``; ``string_length`` limits the id's length, 0 for all of its 64
    bits.
    """
    return f"{name}-{random_id(string_length) if string_length > 0 else random_id()}"


def random_uint64() -> int:
    """Returns 64 random bits from the operating system; :func:`random.seed` has no influence."""
    return int.from_bytes(os.urandom(8), "big")


def random_id(max_length: int | None = None) -> str:
    """Returns 64 random bits as 11 to 14 characters, at most ``max_length``; the first is a
    letter.
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
