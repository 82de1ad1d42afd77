"""References to secrets in ``Role.env``.

A reference is the whole value of a variable: ``${secret:NAME}`` or ``${secret:NAME/KEY}``.
The scheduler replaces the reference by the secret, on the job's machine if possible. A reference is
not a secret: requests, records and dry runs show it.
"""

from __future__ import annotations

from typing import NamedTuple

from torchx_specs.errors import RequestError
from torchx_specs.redaction import LONGEST_NAME, REFERENCE_START, is_secret_key, is_secret_name
from torchx_specs.redaction import is_secret_reference as is_secret_reference


class SecretRef(NamedTuple):
    """A reference to a secret.

    Attributes:
        name: Name of the secret.
        key: Name of one value in the secret; None means the scheduler's default key.
    """

    name: str
    key: str | None = None

    def __str__(self) -> str:
        return f"{REFERENCE_START}{self.name}{'' if self.key is None else f'/{self.key}'}}}"


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
    if not (value.startswith(REFERENCE_START) and value.endswith("}")):
        return None
    name, slash, key = value[len(REFERENCE_START) : -1].partition("/")
    return _checked(SecretRef(name, key if slash else None))


def _checked(reference: SecretRef) -> SecretRef:
    name, key = reference
    if not is_secret_name(name):
        raise RequestError(
            f"{str(reference)!r:.300}: {name!r:.260} is not a valid name of a secret (a lower-case"
            f" letter, then lower-case letters, digits, '-' and '.';"
            f" at most {LONGEST_NAME} characters)"
        )
    if key is not None and not is_secret_key(key):
        raise RequestError(
            f"{str(reference)!r:.560}: {key!r:.260} is not a valid key of a secret (letters,"
            f" digits, '_', '-' and '.', not '-' or '.' first; at most {LONGEST_NAME} characters)"
        )
    return reference
