"""States of jobs and causes of their ends: the tables of a batch system, and one job's data."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from torchx_specs.model.status import AppState


class Phase(Enum):
    """Where a job is between its submission and its end."""

    #: The job waits for its start, or is held.
    WAITING = AppState.PENDING, 1
    #: The job has started, and is stopped for a while.
    STOPPED = AppState.PENDING, 2
    RUNNING = AppState.RUNNING, 3
    #: The system could not start the job, and keeps it until somebody acts.
    ERROR = AppState.FAILED, 4
    SUCCEEDED = AppState.SUCCEEDED, 5
    FAILED = AppState.FAILED, 6
    CANCELLED = AppState.CANCELLED, 7
    UNKNOWN = AppState.UNKNOWN, 8

    @property
    def app_state(self) -> AppState:
        """The state that TorchX shows."""
        return self.value[0]

    @property
    def is_in_queue(self) -> bool:
        """Whether the job waits or runs."""
        return self in (Phase.WAITING, Phase.STOPPED, Phase.RUNNING)

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


@dataclass(frozen=True)
class JobState:
    """A state of jobs in a batch system.

    Attributes:
        phase: The phase.
        meaning: What the state means, for the user; empty if it needs no explanation.
    """

    phase: Phase
    meaning: str = ""


@dataclass(frozen=True)
class Cause:
    """Why a batch system has ended a job.

    The cause decides the state of a replica that a signal ended, and of a replica that recorded
    success: for example, a job whose node fails may record success.

    Attributes:
        app_state: The state of the replica, FAILED or CANCELLED.
        meaning: An explanation, and what the user can do.
    """

    app_state: AppState
    meaning: str


#: The state of a job whose state is not in the table.
UNKNOWN = JobState(Phase.UNKNOWN)


@dataclass
class JobInfo:
    """What a batch system knows about a job, or about one task of a job.

    The class is not frozen, because lists of jobs are long, and creation would take three times as
    long. Nobody changes an object.

    Attributes:
        job_id: The id of the job or task, with which commands address it.
        name: Name of the job; empty if unknown.
        state: The state, a key of the system's table of states; empty if unknown.
        node: Name of the machine that runs the job; empty if no machine runs it.
        reason: Why the job waits or has ended; empty if unknown.
        cause: Why the system has ended the job, a key of its table of causes; empty if the job
            ended by itself, or if unknown.
        exit_code: Exit code as :mod:`subprocess` reports it: negative for a signal; None if
            unknown.
        was_requeued: Whether the system has started the job before.
        submitted: When the job was submitted; None if unknown.
        started: When the job started last; None if it has not started, or if unknown.
        ended: When the job ended; None if it has not ended, or if unknown.
    """

    job_id: str
    name: str = ""
    state: str = ""
    node: str = ""
    reason: str = ""
    cause: str = ""
    exit_code: int | None = None
    was_requeued: bool = False
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
