"""App handles: ``{scheduler}://{session_name}/{app_id}``."""

from __future__ import annotations

import re
from typing import NamedTuple

from torchx_specs.errors import MalformedAppHandleException

AppHandle = str

_HANDLE = re.compile(r"(?P<scheduler>.+)://(?P<session>.*)/(?P<app>.+)\Z")


class ParsedAppHandle(NamedTuple):
    """The parts of an :data:`AppHandle`."""

    scheduler_backend: str
    session_name: str
    app_id: str


def parse_app_handle(app_handle: AppHandle) -> ParsedAppHandle:
    """Parse ``{scheduler}://{session_name}/{app_id}``; the session may be empty.

    >>> parse_app_handle("k8s://default/foo_bar")
    ParsedAppHandle(scheduler_backend='k8s', session_name='default', app_id='foo_bar')
    >>> parse_app_handle("k8s:///foo_bar")
    ParsedAppHandle(scheduler_backend='k8s', session_name='', app_id='foo_bar')

    Raises:
        MalformedAppHandleException: ``app_handle`` does not have this form.
    """
    found = _HANDLE.match(app_handle)
    if not found:
        raise MalformedAppHandleException(app_handle)
    return ParsedAppHandle(found["scheduler"], found["session"], found["app"])


def make_app_handle(scheduler_backend: str, session_name: str, app_id: str) -> AppHandle:
    """Return the handle of an app; the inverse of :func:`parse_app_handle`."""
    return f"{scheduler_backend}://{session_name}/{app_id}"
