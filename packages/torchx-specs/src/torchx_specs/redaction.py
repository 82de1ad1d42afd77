"""Mask values that look like secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: The text that replaces a secret.
MASK = "***"

_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_SECRET_WORDS = frozenset(
    {"credential", "credentials", "passphrase", "passwd", "password"}
    | {"secret", "secrets", "token", "tokens"}
)
_URL_PASSWORD = re.compile(r"(://[^/@\s:]*:)[^/@\s]+(?=@)")


def is_secret(name: str) -> bool:
    """Return True if a value with this name is probably a secret.

    >>> [is_secret(n) for n in ("token", "apiKey", "AWS_SECRET_ID", "key_name", "queue")]
    [True, True, True, False, False]
    """
    words = [word.lower() for word in _WORDS.findall(name)]
    return not _SECRET_WORDS.isdisjoint(words) or words[-1:] in (["key"], ["apikey"])


def masked(value: Any) -> Any:
    """Return a copy of nested data with secrets masked.

    Secrets are values with names such as ``token`` (see :func:`is_secret`), and passwords in URLs.

    An environment variable may also be written as ``{"name": ..., "value": ...}``, as Kubernetes
    and AWS Batch do.
    """
    if isinstance(value, Mapping):
        if value.keys() == {"name", "value"} and is_secret(str(value["name"])) and value["value"]:
            return {"name": value["name"], "value": MASK}
        return {
            k: MASK if is_secret(str(k)) and v not in (None, "") else masked(v)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return masked_text(value) if isinstance(value, str) else value


def masked_text(text: str) -> str:
    """Return ``text`` with the passwords of URLs masked."""
    return _URL_PASSWORD.sub(rf"\1{MASK}", text) if "://" in text else text
