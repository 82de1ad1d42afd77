"""Parses log identifiers: texts that select an app, a role or some replicas in ``torchx log``."""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

from torchx_specs.errors import RequestError
from torchx_specs.model.handles import make_app_handle

FORMAT = "SCHEDULER://[SESSION_NAME]/APP_ID[/ROLE_NAME[/REPLICA_IDS,...]]"

_MAX_SELECTED = 1_000_000
_MAX_DIGITS = 9

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
        RequestError: The text does not have the form of a log identifier, an index has more than 9
            digits, a range of replicas is empty, or the ranges contain more than a million
            replicas.
    """
    found = re.match(_IDENTIFIER, identifier)
    if found is None:
        raise RequestError(f"'{identifier:.200}' is not of the form {FORMAT}")
    handle = make_app_handle(found["scheduler"], found["session"], found["app"])
    return LogSource(handle, found["role"], _indices(found["ids"]) if found["ids"] else None)


def _indices(text: str) -> tuple[int, ...]:
    """Return the distinct indices of a list such as ``0,2-4``, in the given order."""
    ranges = []
    count = 0
    for item in filter(None, text.split(",")):
        first, _, last = item.partition("-")
        last = last or first
        if max(len(first), len(last)) > _MAX_DIGITS:
            raise RequestError(f"replica '{item:.40}': an index has at most {_MAX_DIGITS} digits")
        selected = range(int(first), int(last) + 1)
        if not selected:
            raise RequestError(f"replicas '{item}': the first index is greater than the last one")
        ranges.append(selected)
        count += len(selected)
        if count > _MAX_SELECTED:
            raise RequestError(
                f"replicas '{text:.40}': the ranges contain more than {_MAX_SELECTED:,} replicas;"
                " leave the replicas out to select all of the role"
            )
    return tuple(dict.fromkeys(chain.from_iterable(ranges)))
