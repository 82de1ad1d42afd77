"""Finds an app by a short name: ``@1``, its name or id, or the first characters of its id.

The search begins in the journal, so that an app of this user is found without a query. The
schedulers are queried only if no app in the journal matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, NamedTuple

from torchx_runner.submissions.journal import (
    Submission,
    missing_submissions,
    numbered_submission,
    submissions,
)
from torchx_specs.errors import MalformedAppHandleException, RequestError, UnknownAppException
from torchx_specs.model.handles import AppHandle, parse_app_handle

if TYPE_CHECKING:
    from torchx_runner.submissions.all_schedulers import ListedApps
    from torchx_specs.schedulers import ListAppResponse

    ListApps = Callable[[str | None], ListedApps[ListAppResponse]]

_MAX_CANDIDATES = 10
_LATEST = re.compile(r"@\d{1,9}\Z")
_MISTAKEN = re.compile(r"@(last|latest|newest|prev|previous|-\d+|0+)?\Z")
_PREFIX = re.compile(r"(?P<scheduler>[^:/\s]+)://(?P<id>[^/\s]+)\Z")
_OLDEST = datetime.min.replace(tzinfo=timezone.utc)


class AmbiguousAppError(RequestError):
    """Several apps match a short name; ``candidates`` are their handles."""

    def __init__(self, text: str, candidates: Iterable[str]) -> None:
        self.candidates = tuple(candidates)
        shown = ", ".join(self.candidates[:_MAX_CANDIDATES])
        more = len(self.candidates) - _MAX_CANDIDATES
        super().__init__(
            f"'{text}' matches {len(self.candidates)} apps: {shown}"
            f"{f', and {more} more' if more > 0 else ''}; give a handle"
        )


class AppNotFoundError(UnknownAppException):
    """No app has the given short name."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.args = (f"unknown app: {text}: {reason}",)


class _Candidate(NamedTuple):
    handle: str
    name: str
    time: datetime | None


def is_handle(text: str) -> bool:
    """Return True if a text has the form of a complete handle, ``SCHEDULER://SESSION/ID``."""
    try:
        parse_app_handle(text)
    except MalformedAppHandleException:
        return False
    return True


def find_app(text: str, list_apps: ListApps) -> AppHandle:
    """Return the handle of an app.

    Args:
        text: A handle; ``@1`` for this user's last submission, ``@2`` for the one before it;
            ``SCHEDULER://`` and the first characters of an id; or the name or id of an app. If
            several apps have the name, the result is the newest one.
        list_apps: Returns the apps of the given scheduler; None means all schedulers.

    Raises:
        AmbiguousAppError: Several ids begin with the given characters, or several apps have the
            name or id and their times do not show which one is the newest.
        AppNotFoundError: The journal has fewer than N submissions for ``@N``, no id begins with the
            given characters, or no app has the name or id.
        MalformedAppHandleException: The text is empty, or is a malformed handle.
        RequestError: The text is ``@0``, ``@last`` or alike.
        Exception: The scheduler of ``SCHEDULER://`` cannot list its apps.
    """
    if is_handle(text):
        return text
    if _MISTAKEN.match(text):
        raise RequestError(f"'{text}': the last submission is @1, the one before it @2")
    if _LATEST.match(text):
        return _latest(text)
    prefix = _PREFIX.match(text)
    if prefix:
        return _by_prefix(text, prefix["scheduler"], prefix["id"], list_apps)
    if ":/" in text or not text.strip():
        raise MalformedAppHandleException(text)
    return _by_name(text, list_apps)


def _latest(text: str) -> AppHandle:
    found = numbered_submission(text)
    if found is not None:
        return found.handle
    count = sum(1 for _ in submissions())
    reason = f"the journal has {count or 'no'} submission{'' if count == 1 else 's'} of this user"
    raise AppNotFoundError(text, "; ".join(filter(None, (reason, missing_submissions()))))


def _by_prefix(text: str, scheduler: str, start: str, list_apps: ListApps) -> AppHandle:
    def find(candidates: Iterable[_Candidate]) -> list[_Candidate]:
        found: dict[str, _Candidate] = {}
        for candidate in candidates:
            backend, _, app_id = parse_app_handle(candidate.handle)
            if backend == scheduler:
                if start in _ids(app_id):
                    return [candidate]
                if any(part.startswith(start) for part in _ids(app_id)):
                    found.setdefault(app_id, candidate)
        return list(found.values())

    found = find(map(_of_submission, submissions()))
    if not found:
        listed = list_apps(scheduler)
        if listed.errors:
            raise next(iter(listed.errors.values()))
        found = find(_of_listed(listed))
    if len(found) > 1:
        raise AmbiguousAppError(text, (candidate.handle for candidate in found))
    if not found:
        raise AppNotFoundError(text, f"no app of {scheduler} has an id that begins so")
    return found[0].handle


def _by_name(text: str, list_apps: ListApps) -> AppHandle:
    def matches(candidate: _Candidate) -> bool:
        return candidate.name == text or text in _ids(parse_app_handle(candidate.handle).app_id)

    for submission in submissions():
        if matches(_of_submission(submission)):
            return submission.handle
    listed = list_apps(None)
    found = sorted(
        filter(matches, _of_listed(listed)), key=lambda c: c.time or _OLDEST, reverse=True
    )
    if not found:
        unanswered = f" (no answer from: {', '.join(listed.errors)})" if listed.errors else ""
        raise AppNotFoundError(
            text, f"no app has this name or id{unanswered}; 'torchx list' shows the apps"
        )
    if len(found) > 1 and (found[0].time is None or found[0].time == found[1].time):
        raise AmbiguousAppError(text, (candidate.handle for candidate in found))
    return found[0].handle


def _ids(app_id: str) -> tuple[str, ...]:
    """Return an id such as ``ns:train-x1`` with and without its namespace or queue."""
    return app_id, app_id.rpartition(":")[2]


def _of_submission(submission: Submission) -> _Candidate:
    return _Candidate(submission.handle, submission.name, submission.time)


def _of_listed(listed: ListedApps[ListAppResponse]) -> Iterable[_Candidate]:
    return [
        _Candidate(app.app_handle, app.name, app.submitted or app.started)
        for apps in listed.apps.values()
        for app in apps
    ]
