"""Replaces short names of apps, such as ``@1`` and ``train``, with handles."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_specs.errors import (
    MalformedAppHandleException,
    RequestError,
    UnknownAppException,
)
from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_runner.submissions.all_schedulers import ListedApps
    from torchx_specs.schedulers import ListAppResponse

logger = logging.getLogger(__name__)

# Matches SCHEDULER://ID/ROLE/REPLICAS. SCHEDULER://SESSION/APP/ROLE has the same form, if the name
# of the role is a number. Compiled on first use.
_SHORT_IDENTIFIER = r"(?P<app>[^:/\s]+://(?P<id>[^/\s]+))(?P<replicas>/[^/]+/\d[\d,-]*/?)\Z"


def resolve_handle(text: str) -> str:
    """Return the handle of an app; see :func:`torchx_runner.submissions.lookup.find_app`.

    If the text is a short name, the handle is logged. A complete handle is returned unchanged.

    Raises:
        RequestError: The text is malformed or has more parts than a handle, several apps match, or
            no app has this name.
        UnknownAppException: No app matches ``@N``, or no id begins with the given characters.
    """
    try:
        parsed = parse_app_handle(text)
    except MalformedAppHandleException:
        from torchx_runner.submissions.lookup import find_app

        return _named(text, find_app(text, list_schedulers))
    if "/" in parsed.session_name:
        scheduler, _, path = text.partition("://")
        handle = "/".join(path.split("/")[:2])
        raise RequestError(
            f"'{text}' has more parts than the handle of an app; this command takes"
            f" an app without role and replica. Use '{scheduler}://{handle}'"
        )
    return text


def resolve_handles(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the handles of several apps; see :func:`resolve_handle`."""
    if not any(text.startswith("@") for text in texts):
        return tuple(map(resolve_handle, texts))
    from torchx_runner.submissions.journal import numbered_submissions

    found = numbered_submissions(texts)  # reads the journal only once
    return tuple(
        _named(text, found[text].handle) if text in found else resolve_handle(text)
        for text in texts
    )


def resolve_identifier(text: str) -> str:
    """Return a log identifier in which a handle has replaced the short name of the app.

    For example, ``@1/trainer/0`` and ``slurm://17/trainer/0`` become
    ``slurm://torchx/17/trainer/0``. A text that already has a handle, is malformed, or has the form
    ``SCHEDULER://ID/ROLE/K`` but matches no app, is returned unchanged.

    Raises:
        RequestError: Several apps match the short name.
        UnknownAppException: No app matches another short name.
    """
    if "://" in text:
        scheduler, _, rest = text.partition("://")
        if scheduler and "/" not in rest:
            return resolve_handle(text)
        short = re.match(_SHORT_IDENTIFIER, text)
        if short is None or short["id"] in _sessions():
            return text
        try:
            handle = resolve_handle(short["app"])
        except UnknownAppException:
            return text
        return f"{handle}{short['replicas']}"
    name, slash, replicas = text.partition("/")
    if ":" in name or not name:
        return text  # malformed; the parser of identifiers reports the error
    return f"{resolve_handle(name)}{slash}{replicas}"


def _sessions() -> set[str]:
    """Return the names of the sessions that occur in handles of this user's apps."""
    from torchx_runner.api import DEFAULT_SESSION
    from torchx_runner.submissions.journal import RECENT, submissions

    recent = submissions(RECENT)
    return {DEFAULT_SESSION, *(parse_app_handle(s.handle).session_name for s in recent)}


def _named(text: str, handle: str) -> str:
    logger.info("%s is %s", text, handle)
    return handle


def list_schedulers(
    scheduler: str | None, timeout: float | None = None
) -> ListedApps[ListAppResponse]:
    """Return the apps of one scheduler, or of all installed schedulers.

    Args:
        scheduler: Name of the scheduler; None means all.
        timeout: How long to wait for the answers of all schedulers, in seconds.
    """
    from torchx_cli.arguments.scheduler_choice import all_schedulers, read_cfg
    from torchx_cli.runner_context import open_runner
    from torchx_runner.submissions.all_schedulers import DEFAULT_TIMEOUT, list_all

    def list_one(name: str) -> list[ListAppResponse]:
        # Each thread has its own runner, because a scheduler that hangs while it is created holds
        # the lock of its runner.
        with open_runner() as runner:
            return runner.list(name, read_cfg(runner, name, ()) or None)

    names = all_schedulers() if scheduler is None else [scheduler]
    return list_all(names, list_one, timeout or DEFAULT_TIMEOUT)
