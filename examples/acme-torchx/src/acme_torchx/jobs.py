"""The job table, to which users add jobs, and in which workers claim jobs and report results."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from acme_torchx.database import transaction

#: A job has failed if its worker has not reported for this time, in seconds.
LOST_SECONDS = 30.0

_LOST = f" has not reported for {LOST_SECONDS:.0f} seconds"
_ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
_COLUMNS = "id, name, queue, priority, cpus, max_retries, tasks, state, exit_codes, restarts,"
_COLUMNS += " cancelled, worker, reported, message"


@dataclass(frozen=True)
class Task:
    """One process of a job: the replica ``index`` of a role."""

    role: str
    index: int
    argv: list[str]
    env: dict[str, str]


@dataclass(frozen=True)
class Job:
    """A row of the job table.

    Attributes:
        id: The job's id.
        name: The app's name.
        queue: The queue.
        priority: Jobs with a higher priority start first.
        cpus: How many CPUs of the worker the job needs.
        max_retries: How often the job starts again after a failure.
        tasks: The processes.
        state: The name of an ``AppState``.
        exit_codes: The exit code of each task, after the end of the job.
        restarts: How often the job has started again.
        cancelled: Whether a user has cancelled the job.
        message: Why the job has failed; empty if no reason is known.
    """

    id: str
    name: str
    queue: str
    priority: int
    cpus: float
    max_retries: int
    tasks: list[Task]
    state: str = "PENDING"
    exit_codes: tuple[int, ...] = ()
    restarts: int = 0
    cancelled: bool = False
    message: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state in _ENDED


class JobTable:
    """The jobs of one database.

    Args:
        home: The folder of the database and of the logs.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.path = home / "jobs.db"

    # Users and their scheduler call the following methods.

    def submit(self, job: Job) -> None:
        """Add a job."""
        tasks = json.dumps([asdict(task) for task in job.tasks])
        row = (job.id, job.name, job.queue, job.priority, job.cpus, job.max_retries, tasks)
        with transaction(self.path) as database:
            database.execute(
                "INSERT INTO jobs VALUES"
                " (?, ?, ?, ?, ?, ?, ?, 'PENDING', '[]', 0, 0, NULL, NULL, '')",
                row,
            )

    def find(self, job_id: str) -> Job | None:
        """Return a job, or None if it does not exist."""
        return next(iter(self._select("WHERE id = ?", job_id)), None)

    def jobs(self) -> list[Job]:
        """Return all jobs, the oldest first."""
        return self._select("ORDER BY rowid")

    def cancel(self, job_id: str) -> None:
        """Cancel a job; its worker ends the processes. The state of an ended job stays the same."""
        with transaction(self.path) as database:
            database.execute(
                "UPDATE jobs SET state = 'CANCELLED' WHERE id = ? AND state = 'PENDING'", (job_id,)
            )
            database.execute("UPDATE jobs SET cancelled = 1 WHERE id = ?", (job_id,))

    def delete(self, job_id: str) -> None:
        """Remove a job that has ended, and its logs."""
        with transaction(self.path) as database:
            database.execute("DELETE FROM jobs WHERE id = ?", (job_id,))
        shutil.rmtree(self.home / "logs" / job_id, ignore_errors=True)

    def log_file(self, job: Job, number: int) -> Path:
        """Return the log file of a task."""
        return self.home / "logs" / job.id / f"{number}.log"

    # Workers call the following methods.

    def claim(self, worker: str, queue: str, cpus: float) -> Job | None:
        """Claim the next job of a queue that needs at most ``cpus``; None if there is none."""
        with transaction(self.path) as database:
            row = database.execute(
                "SELECT id FROM jobs WHERE state = 'PENDING' AND queue = ? AND cpus <= ?"
                " ORDER BY priority DESC, rowid LIMIT 1",
                (queue, cpus),
            ).fetchone()
            if row is None:
                return None
            database.execute(
                "UPDATE jobs SET state = 'RUNNING', worker = ?, reported = ? WHERE id = ?",
                (worker, time.time(), row[0]),
            )
        return self.find(row[0])

    def report(self, worker: str) -> set[str]:
        """Record that a worker is alive, and return the ids of its jobs that must end.

        A job, of this or another worker, fails if its worker has not reported for too long.
        """
        now = time.time()
        with transaction(self.path) as database:
            database.execute(
                "UPDATE jobs SET state = 'FAILED', message = 'worker ' || worker || ?"
                " WHERE state = 'RUNNING' AND reported < ?",
                (_LOST, now - LOST_SECONDS),
            )
            database.execute(
                "UPDATE jobs SET reported = ? WHERE worker = ? AND state = 'RUNNING'", (now, worker)
            )
            rows = database.execute(
                "SELECT id FROM jobs WHERE worker = ? AND (cancelled = 1 OR state <> 'RUNNING')",
                (worker,),
            )
            return {job_id for (job_id,) in rows}

    def restart(self, job_id: str) -> None:
        """Record that a job has started again."""
        with transaction(self.path) as database:
            database.execute("UPDATE jobs SET restarts = restarts + 1 WHERE id = ?", (job_id,))

    def finish(self, job_id: str, state: str, exit_codes: list[int], message: str = "") -> None:
        """Record the end of a job, unless its end is recorded already."""
        with transaction(self.path) as database:
            database.execute(
                "UPDATE jobs SET state = ?, exit_codes = ?, message = ?"
                " WHERE id = ? AND state = 'RUNNING'",
                (state, json.dumps(exit_codes), message, job_id),
            )

    def _select(self, where: str, *values: object) -> list[Job]:
        with transaction(self.path) as database:
            rows = database.execute(f"SELECT {_COLUMNS} FROM jobs {where}", values).fetchall()  # noqa: S608
        return [_job(*row) for row in rows]


def _job(*row: Any) -> Job:
    *request, tasks, state, exit_codes, restarts, cancelled, worker, reported, message = row
    job_id, name, queue, priority, cpus, max_retries = request
    if state == "RUNNING" and reported < time.time() - LOST_SECONDS:
        state = "FAILED"
        message = f"worker {worker}{_LOST}"
    return Job(
        job_id,
        name,
        queue,
        priority,
        cpus,
        max_retries,
        [Task(**task) for task in json.loads(tasks)],
        state,
        tuple(json.loads(exit_codes)),
        restarts,
        bool(cancelled),
        message,
    )
