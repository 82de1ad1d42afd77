"""The form of references to secrets: ``${secret:NAME}`` or ``${secret:NAME/KEY}``."""

from __future__ import annotations

import re

#: The longest name or key, in characters.
LONGEST = 253
# A name of a Kubernetes object is also a valid name of a file and of an AWS secret. The first
# character is a letter, because bash reads ${secret:0} as a substring of the variable `secret`.
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"(?=[a-z]){_LABEL}(?:\.{_LABEL})*")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
START = "${secret:"


def is_secret_reference(value: str) -> bool:
    """Return True if a value is a valid reference to a secret."""
    if not (value.startswith(START) and value.endswith("}")):
        return False
    name, slash, key = value[len(START) : -1].partition("/")
    return is_name(name) and (not slash or is_key(key))


def is_name(text: str) -> bool:
    """Return True if a text is a valid name of a secret."""
    return len(text) <= LONGEST and _NAME.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Return True if a text is a valid key of a value in a secret."""
    return len(text) <= LONGEST and _KEY.fullmatch(text) is not None
