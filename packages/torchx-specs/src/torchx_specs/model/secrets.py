"""References to secrets in ``Role.env``.

A reference is the whole value of a variable: ``${secret:NAME}`` or ``${secret:NAME/KEY}``.
The scheduler replaces the reference by the secret, on the job's machine if possible. A reference is
not a secret: requests, records and dry runs show it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torchx_specs.errors import RequestError

_LONGEST = 253
# A name of a Kubernetes object is also a valid name of a file and of an AWS secret. The first
# character is a letter, because bash reads ${secret:0} as a substring of the variable `secret`.
_LABEL = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_NAME = re.compile(rf"(?=[a-z]){_LABEL}(?:\.{_LABEL})*")
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_START = "${secret:"


class SecretRef(NamedTuple):
    """A reference to a secret.

    Attributes:
        name: Name of the secret.
        key: Name of one value in the secret; None means the scheduler's default key.
    """

    name: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{_START}{self.name}{'' if self.key is None else f'/{self.key}'}}}"


def secret(name: str, key: str | None = None) -> str:
    """Return a reference to a secret, for a value of ``Role.env``.

    >>> secret("hf"), secret("db", "password")
    ('${secret:hf}', '${secret:db/password}')

    Args:
        name: Name of the secret: lower-case letters, digits, ``-`` and ``.``, as in Kubernetes.
        key: Name of one value in the secret: letters, digits, ``_``, ``-`` and ``.``.

    Raises:
        RequestError: The name or the key is invalid.
    """
    return str(_checked(SecretRef(name, key)))


def parse_secret(value: str) -> SecretRef | None:
    """Parse the value of an environment variable; return None if it is not a reference to a secret.

    Raises:
        RequestError: The value is a reference with an invalid name or key.
    """
    if not (value.startswith(_START) and value.endswith("}")):
        return None
    name, slash, key = value[len(_START) : -1].partition("/")
    return _checked(SecretRef(name, key if slash else None))


def is_secret_reference(value: str) -> bool:
    """Return True if a value is a valid reference to a secret."""
    try:
        return parse_secret(value) is not None
    except RequestError:
        return False


def _checked(reference: SecretRef) -> SecretRef:
    name, key = reference
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise RequestError(
            f"{str(reference)!r:.300}: {name!r:.260} is not a valid name of a secret (a lower-case"
            f" letter, then lower-case letters, digits, '-' and '.'; at most {_LONGEST} characters)"
        )
    if key is not None and (not _KEY.fullmatch(key) or len(key) > _LONGEST):
        raise RequestError(
            f"{str(reference)!r:.560}: {key!r:.260} is not a valid key of a secret (letters,"
            f" digits, '_', '-' and '.', not '-' or '.' first; at most {_LONGEST} characters)"
        )
    return reference
