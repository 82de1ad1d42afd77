"""One job: its status while it changes, its definition, and its differences from the last one."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_cli.output.status_text import pending_reason, status_data
from torchx_dashboard.jobs import Journal, milliseconds
from torchx_dashboard.stream import changes
from torchx_runner.submissions.changes import ABSENT, differences
from torchx_runner.submissions.journal import Submission
from torchx_specs.errors import UnknownAppException, one_line
from torchx_specs.formats.serialize import to_dict
from torchx_specs.model.handles import make_app_handle, parse_app_handle
from torchx_specs.redaction import masked, masked_text

if TYPE_CHECKING:
    from torchx_runner import AsyncRunner
    from torchx_specs.model.status import AppStatus

# The shortest time between two polls of a job, in seconds.
_INTERVAL = 1.0
# A job that has ended is polled rarely, because it may be deleted.
_ENDED_INTERVAL = 30.0
# How many differences and earlier submissions the page shows.
_MOST_DIFFERENCES = 200
_MOST_EARLIER = 20


def status_messages(
    runner: AsyncRunner, journal: Journal, parameters: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """Yield the status of a job, and each change of it; None if the job does not exist.

    Args:
        runner: Queries the job.
        journal: Has the time of the submission, if the scheduler does not report it.
        parameters: ``handle``: the job.
    """
    handle = str(parameters["handle"])

    has_ended = False

    async def query() -> dict[str, Any] | None:
        nonlocal has_ended
        status = await runner.status(handle)
        has_ended = status is None or status.is_terminal()
        return None if status is None else shown_status(handle, status, journal)

    return changes(query, lambda data: _ENDED_INTERVAL if has_ended else _INTERVAL)


def shown_status(handle: str, status: AppStatus, journal: Journal) -> dict[str, Any]:
    """Return the status of a job as ``torchx status -o json`` does, with times in milliseconds.

    The summary is left out, because it contains a duration and would change at each poll.
    """
    data: dict[str, Any] = masked(status_data(handle, status))
    del data["summary"]
    submission = journal.find(handle)
    submitted = status.submitted or (submission.time if submission else None)
    data.update(
        name=submission.name if submission else "",
        submitted=milliseconds(submitted),
        started=milliseconds(status.started),
        ended=milliseconds(status.ended),
        pending=masked_text(one_line(pending_reason(status))) if not status.is_terminal() else "",
    )
    for role, shown in zip(status.roles, data["roles"], strict=True):
        for replica, row in zip(role.replicas, shown["replicas"], strict=True):
            row.update(started=milliseconds(replica.started), ended=milliseconds(replica.ended))
    return data


async def details(runner: AsyncRunner, journal: Journal, handle: str) -> dict[str, Any]:
    """Return what does not change about a job: its definition, its submission, the differences.

    Args:
        runner: Describes a job that is not in the journal.
        journal: The submissions of this user.
        handle: The job.

    Raises:
        UnknownAppException: Neither the journal nor the scheduler knows the job.
    """
    scheduler = parse_app_handle(handle).scheduler_backend
    submission = journal.find(handle)
    features = await runner.features(scheduler)
    found: dict[str, Any] = {
        "handle": handle,
        "logs": bool(features.logs),
        "streams": bool(features.streams),
        "submission": None,
        "previous": None,
        "differences": [],
        "earlier": [],
    }
    if submission is not None:
        found["submission"] = _submission_data(submission)
        found["rerun"] = shlex.join(["torchx", "rerun", handle])
        earlier = _earlier(journal, submission)
        found["earlier"] = [
            {"handle": _handle_like(handle, other), "time": milliseconds(other.time)}
            for other in earlier[:_MOST_EARLIER]
        ]
        previous = next((other for other in earlier if other.app is not None), None)
        if previous is not None and submission.app is not None:
            found["previous"] = _handle_like(handle, previous)
            found["differences"] = _differences(previous, submission)
    definition = submission.app if submission is not None else None
    if definition is None:
        app = await runner.describe(handle)
        if app is None and submission is None:
            raise UnknownAppException(handle)
        definition = None if app is None else to_dict(app)
    found["definition"] = masked(definition)
    return found


def _submission_data(submission: Submission) -> dict[str, Any]:
    return {
        "name": submission.name,
        "time": milliseconds(submission.time),
        "command": shlex.join(submission.command),
        "folder": submission.folder,
        "cfg": masked(submission.cfg),
        "workspace": submission.workspace,
        "git_commit": submission.git_commit,
        "can_rerun": submission.app is not None,
        "app_missing": submission.app_missing,
    }


def _earlier(journal: Journal, submission: Submission) -> list[Submission]:
    """Return the earlier submissions of apps with the same name, the newest first."""
    return [
        other
        for other in journal.by_app().values()
        if other.name == submission.name and other.time < submission.time
    ]


def _handle_like(handle: str, submission: Submission) -> str:
    """Return the handle of a submission with the session of another handle."""
    session = parse_app_handle(handle).session_name
    return make_app_handle(submission.scheduler, session, submission.app_id)


def _differences(before: Submission, after: Submission) -> list[dict[str, Any]]:
    """Return the differences between two submissions, with secrets masked before the comparison."""
    found = differences(_comparable(before), _comparable(after))
    return [
        {
            "path": d.path,
            "before": None if d.before is ABSENT else d.before,
            "after": None if d.after is ABSENT else d.after,
        }
        for d, _ in zip(found, range(_MOST_DIFFERENCES), strict=False)
    ]


def _comparable(submission: Submission) -> Any:
    return masked(
        {
            "app": submission.app,
            "scheduler": submission.scheduler,
            "cfg": submission.cfg,
            "workspace": submission.workspace,
            "workspace_digest": submission.workspace_digest,
            "git_commit": submission.git_commit,
        }
    )
