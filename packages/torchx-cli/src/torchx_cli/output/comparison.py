"""Compares runs: what differs between them, how they ended, and what they recorded in trackers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_kit.trackers.recorded import Metric, recorded
from torchx_runner.submissions.app_changes import flattened
from torchx_runner.submissions.call_changes import named_arguments
from torchx_specs.errors import TorchXError, one_line
from torchx_specs.redaction import masked, masked_value

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_runner.submissions.journal import Submission
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

# How many schedulers are queried at the same time.
_READERS = 16


class Subject(NamedTuple):
    """An app to compare.

    Attributes:
        handle: The app.
        submission: Its entry in the journal, or what is known of it otherwise; None if nothing is.
        parameters: The parameters of an element of a sweep, which stand for arguments.
        outcome: The state and the duration in seconds; None if the scheduler is to be queried.
    """

    handle: str
    submission: Submission | None
    parameters: Mapping[str, Any] = MappingProxyType({})
    outcome: tuple[str, float | None] | None = None


class ComparedRun(NamedTuple):
    """One run in a comparison.

    Attributes:
        handle: The app.
        state: The state; None if the app is unknown to its scheduler.
        duration: The time from the start to the end, in seconds; None if one of them is unknown.
        fields: Arguments, environment, image and other fields, by name; secrets are not masked.
        shown: The same fields for the output, with secrets masked.
        metrics: What the run has recorded, by name.
    """

    handle: str
    state: str | None
    duration: float | None
    fields: dict[str, Any]
    shown: dict[str, Any]
    metrics: dict[str, Metric]


def compared(
    runner: Runner,
    subjects: Sequence[Subject],
    trackers: Mapping[str, str | None],
) -> list[ComparedRun]:
    """Return the runs of apps.

    A scheduler that does not answer, and a tracker that fails, are skipped with a warning.

    Args:
        runner: Queries the schedulers.
        subjects: The apps.
        trackers: Maps the name of each tracker to its configuration, which may be None.
    """
    found = _outcomes(runner, subjects)
    metrics = recorded([subject.handle for subject in subjects], trackers, histories=True)
    by_call = _have_one_component(subjects)
    runs = []
    for subject, (state, duration), values in zip(subjects, found, metrics, strict=True):
        app = (subject.submission and subject.submission.app) or {}
        fields = _fields(subject, app, by_call)
        shown = _fields(subject, masked(app), by_call)
        shown = {name: masked_value(name.rpartition(".")[2], v) for name, v in shown.items()}
        runs.append(ComparedRun(subject.handle, state, duration, fields, shown, values))
    return runs


def differing(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the names of the fields whose values differ between the runs."""
    names = dict.fromkeys(name for run in runs for name in run.fields)
    return [
        name
        for name in names
        if any(run.fields.get(name) != runs[0].fields.get(name) for run in runs)
    ]


def _outcomes(runner: Runner, subjects: Sequence[Subject]) -> list[tuple[str | None, float | None]]:
    """Return the state and the duration of each app."""
    with ThreadPoolExecutor(_READERS) as pool:
        return list(pool.map(lambda one: one.outcome or _outcome(runner, one.handle), subjects))


def _outcome(runner: Runner, handle: str) -> tuple[str | None, float | None]:
    try:
        status = runner.status(handle)
    except TorchXError as e:
        logger.warning("%s: its state is unknown: %s", handle, one_line(e))
        status = None
    return None if status is None else status.state.name, _duration(status)


def _duration(status: AppStatus | None) -> float | None:
    if status is None or status.started is None or status.ended is None:
        return None
    return max(0.0, round((status.ended - status.started).total_seconds(), 3))


def _have_one_component(subjects: Iterable[Subject]) -> bool:
    """Return True if one component made all known apps: its arguments stand for the roles'."""
    components = {one.submission.component for one in subjects if one.submission is not None}
    return len(components) == 1 and "" not in components


def _fields(subject: Subject, app: Mapping[str, Any], by_call: bool) -> dict[str, Any]:
    """Return the fields of an app; those of an unknown app are its parameters only."""
    submission = subject.submission
    if submission is None:
        return {**subject.parameters}
    roles = [dict(role) for role in app.get("roles", ())]
    fields: dict[str, Any] = {}
    if by_call:
        arguments = named_arguments(submission.arguments).items()
        fields.update((name.lstrip("-"), value) for name, value in arguments)
        for role in roles:
            role.pop("args", None)
    for role in roles:
        prefix = "" if len(roles) == 1 else f"{role.get('name')}."
        fields.update((f"{prefix}{key}", value) for key, value in flattened(role).items())
    fields.update(flattened({"name": app.get("name"), "cfg": submission.cfg}))
    fields["scheduler"] = submission.scheduler
    fields["commit"] = submission.git_commit
    fields["code"] = submission.workspace_digest
    return {**fields, **subject.parameters}
