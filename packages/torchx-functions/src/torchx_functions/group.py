"""Groups of jobs: the jobs of one ``map``, or the job of one ``submit``."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_functions.errors import NoResultError
from torchx_functions.folders import PrivateFolder, open_call, open_group
from torchx_functions.host_folder import HostFolder, read_host_folder
from torchx_functions.job import Job, default_runner
from torchx_functions.outcome import CANCELLED, CLAIM
from torchx_functions.submissions import Submission, recorded_submissions, submission_of
from torchx_specs.errors import BackendError, TorchXError, UnknownAppException, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, AppStatus

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_sweep import ElementRecord

logger = logging.getLogger(__name__)

R = TypeVar("R")

# The states of a sweep's elements are read again after this time, in seconds.
_REUSED_SECONDS = 0.25
# How long the driver of a sweep may take to record the handle of a job that has run, in seconds.
_RECORD_SECONDS = 5.0
# Results of JobGroup.end_of for jobs whose log does not exist.
NO_APP = "its scheduler has no such app any more"
NO_SWEEP = "its sweep does not exist"
_STATES = {
    "QUEUED": AppState.PENDING,
    "STARTING": AppState.SUBMITTED,
    "SUBMITTED": AppState.PENDING,
    "RUNNING": AppState.RUNNING,
    "SUCCEEDED": AppState.SUCCEEDED,
    "FAILED": AppState.FAILED,
    "CANCELLED": AppState.CANCELLED,
}


class JobGroup(list[Job[R]]):
    """A list of the jobs of one ``map``, in the order of the arguments; for ``submit``, one job.

    Args:
        folder: The folder of the group.
        runner: Queries and cancels the jobs.
        handle: The handle of the sweep, or of the app of ``submit``.
        size: The number of jobs.
        retries: How many times a failed job is run again.
    """

    def __init__(
        self, folder: str, runner: Runner, handle: str, size: int, retries: int = 0
    ) -> None:
        super().__init__(Job(self, number) for number in range(size))
        self.folder = folder
        self.runner = runner
        self.handle = handle
        self.retries = retries
        self.is_sweep = parse_app_handle(handle).scheduler_backend == "sweep"
        self._elements: list[ElementRecord] = []
        self._elements_read = float("-inf")

    @classmethod
    def from_handle(cls, handle: str, runner: Runner | None = None) -> JobGroup[Any]:
        """Return the group that has this handle.

        Args:
            handle: The handle of a ``map``, such as ``sweep://torchx/ID``, or of a ``submit``.
            runner: Queries and cancels the jobs; the default is a runner of this process.

        Raises:
            UnknownAppException: ``$TORCHX_HOME`` has no record of this handle.
            MalformedAppHandleException: The handle is malformed.
            UnsafeFolderError: Another user may have changed the folder of the jobs.
            NoResultError: A file with the record of the jobs is damaged.
        """
        runner = runner or default_runner()
        scheduler, _, _ = parse_app_handle(handle)
        found = submission_of(handle)
        if found is None and scheduler != "sweep":
            recover(runner, scheduler)
            found = submission_of(handle)
        if found is None:
            raise UnknownAppException(handle)
        try:
            with open_group(found.folder) as group:
                size, retries = read_counts(group)
        except FileNotFoundError:
            raise UnknownAppException(handle) from None
        return cls(found.folder, runner, handle, size, retries)

    def __repr__(self) -> str:
        return f"<JobGroup {self.handle} of {len(self)} jobs>"

    def results(self, timeout: float | None = None) -> Iterator[R]:
        """Yield the result of each job, in the order of the arguments.

        Args:
            timeout: How long to wait for all results, in seconds; None means without a limit.

        Raises:
            Exception: See :meth:`Job.result`.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        for job in self:
            yield job.result(None if deadline is None else max(0, deadline - time.monotonic()))

    def cancel(self) -> None:
        """Cancel all jobs that have not ended."""
        if not self.is_sweep:
            self[0].cancel()
            return
        from torchx_sweep import api

        api.cancel(self.handle)

    @cached_property
    def _host_folder(self) -> HostFolder | None:
        with suppress(FileNotFoundError), open_group(self.folder) as group:
            return read_host_folder(group)
        return None

    def fetch(self, *, is_due: bool = False) -> None:
        """Copy new outcomes to this machine if the jobs use the folder of a host.

        Args:
            is_due: Whether to look for them even if this was done a moment ago.

        Raises:
            UnsafeFolderError: Another user may have changed the folder.
        """
        if self._host_folder is not None:
            try:
                self._host_folder.fetch(self.folder, is_due=is_due)
            except BackendError as e:
                logger.warning("the outcomes of %s are unknown: %s", self.handle, one_line(e))

    def has_folder(self, number: int) -> bool:
        """Return whether the folder of a job exists."""
        is_deleted = self._host_folder is not None and self._host_folder.is_deleted
        return not is_deleted and os.path.isdir(os.path.join(self.folder, str(number)))

    def claim(self, number: int) -> None:
        """Record that a job is cancelled, unless it has started."""
        if self._host_folder is not None:
            self._host_folder.claim(number, CANCELLED)
            self.fetch(is_due=True)
            return
        with open_call(os.path.join(self.folder, str(number))) as folder:
            folder.create(CLAIM, CANCELLED)

    # The following methods return the states of the group's jobs.

    def _element(self, number: int) -> ElementRecord:
        """Return an element of the sweep; one query reads the states of all elements."""
        now = time.monotonic()
        if now - self._elements_read > _REUSED_SECONDS:
            from torchx_sweep import api

            self._elements = api.results(self.handle)
            self._elements_read = time.monotonic()
        return self._elements[number]

    def handle_of(self, number: int, has_run: bool = False) -> str:
        """Return the handle of a job's app; empty if the app does not exist yet or was deleted.

        Args:
            number: Index of the job.
            has_run: Whether the job has an outcome. The driver of the sweep may record the handle a
                moment later, so this method waits for it.
        """
        if not self.is_sweep:
            return self.handle
        deadline = time.monotonic() + _RECORD_SECONDS
        while True:
            try:
                handle = self._element(number).handle
            except UnknownAppException:
                return ""
            if handle or not has_run or time.monotonic() > deadline:
                return handle
            time.sleep(_REUSED_SECONDS)

    def status_of(self, number: int) -> AppStatus | None:
        """Return the status of a job's app, or None if the app does not exist.

        Before the app of a sweep's element is submitted, return the status of the element.
        """
        handle = self.handle_of(number)
        return self.runner.status(handle) if handle else self._known_status(number)

    def _known_status(self, number: int) -> AppStatus | None:
        """Return the status of a job; for a sweep, as its driver has recorded it."""
        if not self.is_sweep:
            return self.runner.status(self.handle)
        try:
            element = self._element(number)
        except UnknownAppException:
            return None
        return AppStatus(_STATES[element.state.value], msg=element.reason)

    def end_of(self, number: int) -> str | None:
        """Return how a job has ended, or None if it has not ended.

        Returns:
            A text such as ``FAILED`` or ``FAILED: out of memory``; :data:`NO_APP` or
            :data:`NO_SWEEP` if the app or the sweep does not exist.
        """
        status = self._known_status(number)
        if status is None:
            return NO_SWEEP if self.is_sweep else NO_APP
        if not status.is_terminal():
            return None
        reason = one_line(status.message or "")
        return f"{status.state.name}: {reason}" if reason else status.state.name


def read_counts(group: PrivateFolder) -> tuple[int, int]:
    """Return the number of jobs of a group, and how many times a failed job is run again.

    Args:
        group: The open folder of the group.

    Raises:
        FileNotFoundError: The file ``job.json`` does not exist.
        UnsafeFolderError: Another user may have changed the file.
        NoResultError: The file is damaged.
    """
    spec = json.loads(group.read("job.json"))
    return spec["size"], spec["retries"]


def interrupted_jobs(runner: Runner | None = None) -> list[Job[Any]]:
    """Return the jobs whose clients were killed before they recorded the handle of the job.

    The handles are recorded, so that :meth:`Job.from_handle` accepts them from now on. The result
    may include a job that another process is submitting at this moment.

    Args:
        runner: Lists the apps of the schedulers; the default is a runner of this process.
    """
    return recover(runner or default_runner())[0]


def recover(runner: Runner, scheduler: str = "") -> tuple[list[Job[Any]], dict[str, str]]:
    """Look for the apps of interrupted submissions, and record their handles.

    Args:
        runner: Lists the apps.
        scheduler: Only submissions to this scheduler; empty means all.

    Returns:
        The jobs of the submissions whose app was found; and a dict with a reason for each folder
        whose submission is undecided: its app was not found, but the list of apps is incomplete.
        All other submissions to the scheduler have no app.
    """
    from torchx_sweep.handles import find_apps

    queries: dict[tuple[str, str], list[Submission]] = {}
    for submission in recorded_submissions():
        if not submission.handle and scheduler in ("", submission.scheduler):
            key = (submission.scheduler, json.dumps(submission.cfg, sort_keys=True))
            queries.setdefault(key, []).append(submission)
    jobs: list[Job[Any]] = []
    unknown: dict[str, str] = {}
    for (name, _), submissions in queries.items():
        names = {submission.name for submission in submissions}
        try:
            apps, is_complete = find_apps(runner, name, submissions[0].cfg, names)
        except TorchXError as e:
            logger.warning("the apps of %s cannot be listed: %s", name, one_line(e))
            apps, is_complete = {}, False
        for submission in submissions:
            app = apps.get(submission.name)
            if app is None:
                if not is_complete:
                    reason = f"{name} cannot tell whether it has the app {submission.name}"
                    unknown[submission.folder] = reason
                continue
            try:
                submission.settle(app.app_handle)
                jobs.append(JobGroup.from_handle(app.app_handle, runner)[0])
            except (NoResultError, UnknownAppException, FileNotFoundError) as e:
                logger.warning("%s", e)
    return jobs, unknown
