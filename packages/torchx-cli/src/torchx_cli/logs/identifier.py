"""Parses log identifiers: texts that select an app, a role or some replicas in ``torchx log``."""

from __future__ import annotations

import re
from typing import NamedTuple

from torchx_specs.errors import RequestError
from torchx_specs.model.handles import make_app_handle

FORMAT = "SCHEDULER://[SESSION_NAME]/APP_ID[/ROLE_NAME[/REPLICA_IDS,...]]"

# Compiled on first use: `torchx run` imports this module without parsing an identifier.
_IDENTIFIER = (
    r"(?P<scheduler>[^:/\s]+)://(?P<session>[^/]*)/(?P<app>[^/]+)"
    r"(/(?P<role>[^/]+)(/(?P<ids>\d+(-\d+)?(,\d+(-\d+)?)*),?)?)?/?\Z"
)


class LogSource(NamedTuple):
    """The app, role and replicas that a log identifier selects.

    Attributes:
        app_handle: The app.
        role: One of its roles; None selects all roles.
        replicas: Indices of the role's replicas; None selects all replicas.
    """

    app_handle: str
    role: str | None = None
    replicas: tuple[int, ...] | None = None


def parse_identifier(identifier: str) -> LogSource:
    """Return the app, role and replicas that a log identifier selects.

    >>> parse_identifier("k8s://torchx/ns:train-x1/trainer/0,2-4")
    LogSource(app_handle='k8s://torchx/ns:train-x1', role='trainer', replicas=(0, 2, 3, 4))

    Raises:
        RequestError: The text does not have the form of a log identifier.
    """
    found = re.match(_IDENTIFIER, identifier)
    if found is None:
        raise RequestError(f"'{identifier}' is not of the form {FORMAT}")
    handle = make_app_handle(found["scheduler"], found["session"], found["app"])
    return LogSource(handle, found["role"], _indices(found["ids"]) if found["ids"] else None)


def _indices(text: str) -> tuple[int, ...]:
    """Return the distinct indices of a list such as ``0,2-4``, in the given order."""
    indices: dict[int, None] = {}
    for item in filter(None, text.split(",")):
        first, _, last = item.partition("-")
        indices.update(dict.fromkeys(range(int(first), int(last or first) + 1)))
    return tuple(indices)
