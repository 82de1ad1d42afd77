"""The daemon ``acme-worker``, which runs the jobs of one queue on its machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from types import FrameType

import click

from acme_torchx.database import acme_home
from acme_torchx.jobs import Job, JobTable, Task

#: How long a process may continue after SIGTERM, in seconds.
GRACE_SECONDS = 5.0

#: The exit code of a task whose program cannot be started, as in a shell.
NOT_STARTED = 127

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 1.0


class RunningJob:
    """The processes of a job.

    Args:
        table: The job table.
        job: The job.
    """

    def __init__(self, table: JobTable, job: Job) -> None:
        self.job = job
        self.cancelled = False
        self._table = table
        self._retries = 0
        self._kill_at: float | None = None
        self._start()

    def _start(self) -> None:
        self._kill_at = None
        self._tasks = [self._start_task(number, task) for number, task in enumerate(self.job.tasks)]

    def _start_task(self, number: int, task: Task) -> subprocess.Popen[bytes] | int:
        path = self._table.log_file(self.job, number)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("ab") as log:
            try:
                return subprocess.Popen(  # noqa: S603
                    task.argv,
                    env={**os.environ, **task.env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except (OSError, ValueError) as e:
                log.write(f"cannot start {task.argv[0]}: {e}\n".encode(errors="surrogateescape"))
                return NOT_STARTED

    def poll(self, stopping: bool) -> bool:
        """End, kill or restart the processes if necessary; return True once the end is recorded.

        Args:
            stopping: Whether the worker stops, and so ends the job.
        """
        codes = [task if isinstance(task, int) else task.poll() for task in self._tasks]
        ended = [code for code in codes if code is not None]
        if len(ended) == len(codes):
            return self._ended(ended, stopping)
        # If one task has failed, end the others, which would wait for the failed task.
        if self._kill_at is None and (self.cancelled or stopping or any(ended)):
            self._send(signal.SIGTERM)
            self._kill_at = time.monotonic() + GRACE_SECONDS
        elif self._kill_at is not None and time.monotonic() > self._kill_at:
            self._send(signal.SIGKILL)
        return False

    def _ended(self, codes: list[int], stopping: bool) -> bool:
        if self.cancelled:
            self._table.finish(self.job.id, "CANCELLED", codes)
        elif not any(codes):
            self._table.finish(self.job.id, "SUCCEEDED", codes)
        elif stopping:
            self._table.finish(self.job.id, "FAILED", codes, "the worker was stopped")
        elif self._retries < self.job.max_retries:
            self._retries += 1
            self._table.restart(self.job.id)
            self._start()
            return False
        else:
            self._table.finish(self.job.id, "FAILED", codes)
        return True

    def _send(self, number: signal.Signals) -> None:
        for task in self._tasks:
            if not isinstance(task, int) and task.returncode is None:
                os.killpg(task.pid, number)


class Worker:
    """Takes jobs while it has free CPUs, and runs them.

    Args:
        table: The job table.
        queue: The queue.
        cpus: How many CPUs the jobs of this worker may use together.
    """

    def __init__(self, table: JobTable, queue: str, cpus: float) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}"
        self._table = table
        self._queue = queue
        self._cpus = cpus
        self._running: dict[str, RunningJob] = {}
        self._stop = threading.Event()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: make :meth:`run` end the jobs and return."""
        self._stop.set()

    def run(self) -> None:
        """Run jobs until :meth:`stop` is called; then end the running jobs."""
        report_at = 0.0
        while self._running or not self._stop.is_set():
            if time.monotonic() >= report_at:
                for job_id in self._table.report(self.name) & self._running.keys():
                    self._running[job_id].cancelled = True
                report_at = time.monotonic() + _REPORT_SECONDS
            if not self._stop.is_set():
                self._take()
            for job_id, job in list(self._running.items()):
                if job.poll(self._stop.is_set()):
                    del self._running[job_id]
            time.sleep(_POLL_SECONDS)

    def _take(self) -> None:
        while True:
            free = self._cpus - sum(running.job.cpus for running in self._running.values())
            job = self._table.claim(self.name, self._queue, free)
            if job is None:
                return
            self._running[job.id] = RunningJob(self._table, job)


@click.command()
@click.option("--queue", default="default", show_default=True, help="Run the jobs of this queue.")
@click.option(
    "--cpus", type=float, default=float(os.cpu_count() or 1), help="Use this many CPUs (all)."
)
def main(queue: str, cpus: float) -> None:
    """Run the jobs of Acme's job table on this machine until SIGTERM or Ctrl-C."""
    home = acme_home()
    home.mkdir(parents=True, exist_ok=True)
    worker = Worker(JobTable(home), queue, cpus)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, worker.stop)
    click.echo(f"worker {worker.name}: {cpus:g} CPUs for the jobs of queue {queue} in {home}")
    worker.run()
