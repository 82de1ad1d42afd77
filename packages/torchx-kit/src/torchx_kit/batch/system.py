"""The interface between a batch system and the code that all batch systems share."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torchx_kit.batch.client import ClusterClient
from torchx_kit.batch.entries import Entry
from torchx_kit.batch.errors import BatchError, EndedError
from torchx_kit.batch.names import JobName
from torchx_kit.batch.states import UNKNOWN, Cause, JobInfo, JobState, Phase
from torchx_kit.hosts.operations import Operation, ReadFiles, Run
from torchx_specs.model.app import Role


@dataclass(frozen=True)
class NativeJob:
    """A job to submit.

    Attributes:
        name: The job's name.
        argv: The program of the job, and its arguments. Other users may see them.
        folder: Absolute path of the working directory.
        options: Options of the submission command that :meth:`BatchSystem.options` returned.
        tasks: The number of tasks; 0 for a job without tasks.
        limit: How many tasks may run at the same time; None means without a limit.
        previous: Id of a job that must end before this job starts; empty for none.
        first: Name of the app's first job, for its other jobs; empty for the first one. The
            replicas wait for replica 0 of the first role. So the other jobs should not start before
            the first job, if the system can wait for the start of a job.
        is_held: Whether the job must not start before :meth:`BatchSystem.release_argv`.
        log: Path, without suffix, of files for messages of the batch system about the job.
    """

    name: str
    argv: Sequence[str]
    folder: str
    options: Sequence[str] = ()
    tasks: int = 0
    limit: int | None = None
    previous: str = ""
    first: str = ""
    is_held: bool = False
    log: str = "/dev/null"


@dataclass(frozen=True)
class ScriptParts:
    """Shell code of the job script that depends on the batch system.

    Attributes:
        task: An expression for the index of the job's task, which starts with 0.
        signals: Names of the signals that the system sends before it kills a job.
        on_signal: Code that runs when such a signal arrives. If the system sends the signal to the
            script alone, the code should send it to the process group.
        after_failure: Code that runs when this replica is the first one that failed. It should end
            the other jobs of the app, whose names begin with ``$tx_app-``. Other replicas that run
            notice the failure without it.
        after_signal: Code that runs when a signal has ended this replica before the first failure.
        watch: Code that runs every second while this replica runs, in the background.
    """

    task: str
    signals: str = "INT TERM USR1 USR2 XCPU"
    on_signal: str = "    :"
    after_failure: str = ":"
    after_signal: str = ":"
    watch: str = ":"


class BatchSystem(ClusterClient):
    """A batch system: its commands, and the forms of their output.

    An app is submitted as one job for each role, whose tasks are the replicas, or as one job for
    each replica. An array of apps is one job, whose tasks are the apps. Subclasses set the class
    variables and implement the abstract methods; the arguments of the constructor are those of
    :class:`~torchx_kit.batch.client.ClusterClient`.
    """

    #: Name of the scheduler, such as ``sge``.
    backend: ClassVar[str]
    #: Name of the system for messages, such as ``Grid Engine``.
    title: ClassVar[str]
    #: The system's states by name.
    states: ClassVar[Mapping[str, JobState]]
    #: Why the system ends jobs, by :attr:`JobInfo.cause`.
    causes: ClassVar[Mapping[str, Cause]] = {}
    #: Explanations of the reasons why jobs wait; see :mod:`torchx_kit.jobs.pending_reasons`.
    reasons: ClassVar[Sequence[tuple[str, str, str]]] = ()
    #: Whether the replicas of a role are the tasks of one job.
    has_tasks: ClassVar[bool]
    #: Code of the job script.
    script: ClassVar[ScriptParts]
    #: Pattern of variables that would change the jobs of an app, and are removed: those that the
    #: system sets in jobs, for an app that a job submits, and some of the submission command.
    job_variables: ClassVar[str]
    #: Whether the submission command passes its environment to the job, hidden from other users.
    passes_environment: ClassVar[bool]
    #: The option of the scheduler with the directory of the jobs.
    folder_option: ClassVar[str] = "job_dir"
    #: The option with which the submission command holds a job. If the user has given it in the
    #: option ``extra``, the jobs stay held.
    hold_option: ClassVar[str]
    #: Options of the submission command with which the system starts a job again that ends with
    #: :data:`~torchx_kit.batch.script.EXIT_AGAIN`, or whose host fails.
    requeue_options: ClassVar[Sequence[str]]
    #: Whether one command submits a whole app. Then an interrupted submission needs no undoing.
    is_atomic: ClassVar[bool] = False
    #: The most tasks of an array; 0 if the system cannot run arrays of apps.
    array_size: ClassVar[int] = 0
    #: The most elements in an array that TorchX submits; 0 for the system's limit. Every query of
    #: an element reads the array's entry in the index, so the entry should stay small.
    largest_array: ClassVar[int] = 2000
    #: The number of the first task in the ids of tasks.
    first_task: ClassVar[int] = 1
    #: Whether :meth:`cancel_argv` also ends elements that the system has not made yet.
    cancels_all_elements: ClassVar[bool] = False
    #: The most ids on one command line.
    most_ids: ClassVar[int] = 1000

    # The commands.

    def prepare(self) -> None:
        """Query what :meth:`options` depend on, before a submission; a dry run does not call this.

        Raises:
            BatchError: The query failed.
        """

    @abstractmethod
    def options(self, role: Role, cfg: Any) -> list[str]:
        """Return the options of the submission command for a role's resource, and for the cfg."""

    @abstractmethod
    def submission(self, job: NativeJob) -> tuple[list[str], bytes | None]:
        """Return the command that submits a job, and its standard input."""

    @abstractmethod
    def parse_job_id(self, output: str) -> str:
        """Return the id in the output of the submission command; empty if there is none."""

    @abstractmethod
    def listing_argv(self, job_ids: Sequence[str] | None) -> list[str]:
        """Return the command that lists jobs with all their tasks.

        Args:
            job_ids: The jobs; None means all jobs of this user. A system that cannot select jobs
                may list more.
        """

    @abstractmethod
    def parse_listing(self, output: str) -> Iterable[JobInfo]:
        """Yield the jobs and tasks in the output of :meth:`listing_argv`.

        Raises:
            BatchError: The output is not a listing.
        """

    @abstractmethod
    def explain(self, jobs: Sequence[JobInfo]) -> Mapping[str, JobInfo]:
        """Return reasons, causes, exit codes and times that the listing lacks, by job id.

        Jobs of which the system knows nothing more are left out. If a query fails, the result is
        empty.

        Args:
            jobs: Jobs that wait, that have just started, or that have ended. A job that the listing
                lacks has no state.
        """

    @abstractmethod
    def cancel_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Return the command that ends jobs or tasks."""

    def release_argv(self, job_ids: Sequence[str]) -> list[str]:
        """Return the command that lets the held jobs of a submission start.

        A system that submits an app by one command holds no jobs.
        """
        raise NotImplementedError

    def task_id(self, job_id: str, index: int) -> str:
        """Return the id of a task.

        Args:
            job_id: The id of the job.
            index: The index of the task, which starts with 0.
        """
        return f"{job_id}.{index + self.first_task}"

    def job_of_task(self, task_id: str) -> str:
        """Return the id of the job of a task; the id of a job is returned unchanged."""
        return re.split(r"[.\[]", task_id)[0]

    def index_of_task(self, task_id: str) -> int | None:
        """Return the index of a task, which starts with 0; None for the id of a job."""
        match = re.fullmatch(r"[^.\[]*[.\[](\d+)\]?", task_id)
        return int(match[1]) - self.first_task if match else None

    def max_array_size(self) -> int:
        """Return how many tasks an array of apps may have; 0 if the system cannot run arrays.

        Raises:
            BatchError: The system cannot be reached.
        """
        return self.array_size

    # What all systems share.

    def phase_of(self, job: JobInfo | None) -> Phase:
        """Return the phase of a job; UNKNOWN without a job or a known state."""
        return self.state_of(job).phase

    def state_of(self, job: JobInfo | None) -> JobState:
        """Return the entry in the table of states; an unknown state if it has none."""
        return self.states.get(job.state, UNKNOWN) if job is not None else UNKNOWN

    def add_job_ids(self, entries: Iterable[Entry], jobs: Iterable[JobInfo]) -> None:
        """Find the missing job ids of apps by the jobs' names, and add them to the entries.

        Do nothing for an entry that is complete.
        """
        missing = [entry for entry in entries if not entry.complete]
        found = {job.name: self.job_of_task(job.job_id) for job in jobs} if missing else {}
        for entry in missing:
            app_id = entry.split_id(entry.app_id)[0]
            for role in entry.roles:
                for k, known in enumerate(role.jobs):
                    name = JobName(app_id, role.job_name, None if self.has_tasks else k)
                    role.jobs[k] = known or found.get(str(name), "")

    def is_ours(self, job: JobInfo) -> bool:
        """Return whether TorchX has submitted a job, as the listing shows it."""
        return JobName.parse(job.name) is not None

    def job_of_replica(self, entry: Entry, role: int, k: int) -> str:
        """Return the id of the job or task that runs a replica; empty if it is not submitted.

        Args:
            entry: The app's index entry.
            role: Index of the role.
            k: Index of the replica in its role.
        """
        job = entry.roles[role].jobs[0 if self.has_tasks else k]
        task = entry.element if entry.element is not None else k if self.has_tasks else None
        return job if task is None or not job else self.task_id(job, task)

    def listing(
        self, job_ids: Sequence[str] | None, reads: Sequence[ReadFiles] = ()
    ) -> tuple[dict[str, JobInfo], list[dict[str, bytes]]]:
        """Return jobs by id, and the content of files that are read after the query.

        Args:
            job_ids: As for :meth:`listing_argv`.
            reads: The files.

        Raises:
            BatchError: The query failed.
        """
        if job_ids is not None and len(job_ids) > self.most_ids:
            job_ids = None
        query = self.command(self.listing_argv(job_ids))
        output, *files = self.batch([query, *reads], is_safe=True)
        files += self.batch(reads[len(files) :])  # a query that found no job ends the request
        return {job.job_id: job for job in self.parse_listing(output)}, files

    def submission_command(self, job: NativeJob, env: Mapping[str, str | None]) -> Run:
        """Return the operation that submits a job.

        Args:
            job: The job.
            env: Changes of the environment.
        """
        argv, stdin = self.submission(job)
        own = {} if self.passes_environment else self.env
        # The command is not repeated if the system is unreachable; it retries by itself.
        seconds = max(self.timeout, self.patience)
        return self.command(argv, stdin=stdin, env={**own, **env}, timeout=seconds)

    def submit_jobs(
        self, files: Sequence[Operation], commands: Sequence[Run], once: str
    ) -> list[str]:
        """Submit jobs in one request, and return their ids.

        Args:
            files: Operations that come first, such as those that write the script.
            commands: The results of :meth:`submission_command`.
            once: A file of the host that identifies the submission, as for :meth:`batch`.

        Raises:
            BatchError: The system refuses a job, or cannot be reached.
        """
        outputs = self.batch([*files, *commands], once=once)[-len(commands) :]
        return [self._job_id(output) for output in outputs]

    def _job_id(self, output: str) -> str:
        found = self.parse_job_id(output)
        if not found:
            raise BatchError(f"{self.title} printed no job id, but {output.strip()!r}")
        return found

    def cancel(self, job_ids: Sequence[str]) -> None:
        """End jobs or tasks; a job that has ended is not an error.

        Raises:
            BatchError: The system refuses, or cannot be reached.
        """
        self._change(self.cancel_argv, job_ids)

    def release(self, job_ids: Sequence[str]) -> None:
        """Let held jobs of a submission start; a job that has ended is not an error.

        Raises:
            BatchError: The system refuses, or cannot be reached.
        """
        self._change(self.release_argv, job_ids)

    def _change(self, argv: Any, job_ids: Sequence[str]) -> None:
        # Without ids, some commands act on all jobs of the user.
        for start in range(0, len(job_ids), self.most_ids):
            try:
                self.run_idempotent(*argv(job_ids[start : start + self.most_ids]))
            except EndedError:
                pass

    def is_job_variable(self, name: str) -> bool:
        """Return whether a variable must not reach the jobs of an app that a job submits."""
        return bool(re.fullmatch(self.job_variables, name))
