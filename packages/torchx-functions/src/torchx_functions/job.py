"""Jobs that run a function: their status, result and exception."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from torchx_functions.app import ROLE
from torchx_functions.errors import (
    FunctionJobError,
    JobCancelledError,
    NoResultError,
    RemoteError,
    RemoteTraceback,
    ResultTimeoutError,
)
from torchx_functions.folders import open_call
from torchx_functions.outcome import (
    CANCELLED,
    CLAIM,
    OUTCOME,
    STARTED,
    Header,
    Versions,
    split_outcome,
)
from torchx_specs.errors import BackendError, RequestError, one_line
from torchx_specs.model.status import AppState
from torchx_specs.once import once

if TYPE_CHECKING:
    from torchx_functions.group import JobGroup
    from torchx_runner import Runner
    from torchx_specs.model.status import AppStatus

logger = logging.getLogger(__name__)

R = TypeVar("R")

# The first and the longest pause between two checks of a job's folder, and between two queries of
# the scheduler, in seconds.
_PAUSES = (0.005, 0.5)
_STATUS_PAUSES = (0.1, 5.0)
# How long a network file system may take to show the outcome of a job that has ended, in seconds.
_VISIBLE_SECONDS = 10.0
# Jobs of these schedulers use this machine's file system, on which outcomes are visible at once.
_LOCAL = ("local_cwd://", "local_docker://")


@once
def default_runner() -> Runner:
    """Return the runner that this process uses unless the caller gives another one."""
    from torchx_runner import get_runner

    return get_runner()


class Job(Generic[R]):
    """One function call, which runs as a job.

    ``submit`` and ``map`` return jobs. :meth:`from_handle` returns a job in another process.

    Args:
        group: The jobs of the same ``map``; for ``submit``, a group of one job.
        number: The index of the job in the group.
    """

    def __init__(self, group: JobGroup[R], number: int) -> None:
        self._group = group
        self._number = number
        self._status_pause = _STATUS_PAUSES[0]
        self._next_status = 0.0
        self._end_seen: float | None = None
        self._end = ""
        self._has_started = False
        self._is_done = False

    @classmethod
    def from_handle(cls, handle: str, runner: Runner | None = None) -> Job[Any]:
        """Return the job that :meth:`Executor.submit` returned with this handle.

        Args:
            handle: The job's handle.
            runner: Queries and cancels the job; the default is a runner of this process.

        Raises:
            UnknownAppException: ``$TORCHX_HOME`` has no record of this handle.
            RequestError: The handle belongs to a ``map``.
            MalformedAppHandleException: The handle is malformed.
            UnsafeFolderError: Another user may have changed the folder of the job.
        """
        from torchx_functions.group import JobGroup

        group = JobGroup.from_handle(handle, runner)
        if group.is_sweep:
            raise RequestError(f"{handle} is the handle of a map; use JobGroup.from_handle")
        return group[0]

    def __repr__(self) -> str:
        return f"<Job {self._name()}>"

    @property
    def handle(self) -> str:
        """The handle of the app; for ``map``, empty before the submission and without the sweep."""
        has_run = os.path.lexists(os.path.join(self.folder, OUTCOME))
        return self._group.handle_of(self._number, has_run)

    @property
    def folder(self) -> str:
        """The folder with the arguments and the outcome of the call."""
        return os.path.join(self._group.folder, str(self._number))

    def _name(self) -> str:
        """Return the handle. Before its submission, a job is named by its index and its ``map``."""
        return self.handle or f"{self._number} of {self._group.handle}"

    def status(self) -> AppStatus | None:
        """Return the status of the app, as :meth:`JobGroup.status_of` does.

        If the scheduler has not noticed yet that the job has ended, the outcome of the job decides,
        and the status has no roles.
        """
        status = self._group.status_of(self._number)
        if status is None or status.is_terminal() or not self.done():
            return status
        return replace(status, state=_state_after(self._outcome[1]), roles=[])

    def log(self, follow: bool = False) -> Iterator[str]:
        """Yield the lines of the job's output; nothing before the job has been submitted.

        Args:
            follow: Whether to wait for further lines until the job has ended. The log of a job
                that is done is always read to its end, which a scheduler may notice late.

        Raises:
            UnknownAppException: The scheduler does not know the job any more.
        """
        if handle := self.handle:
            follow = follow or self.done()
            yield from self._group.runner.log_lines(handle, ROLE, 0, should_tail=follow)

    def cancel(self) -> bool:
        """Cancel the job; return False if it has already ended.

        If the job has not started, its function is never called.
        """
        if self.done():
            return False
        self._group.claim(self._number)
        if self.handle:
            self._group.runner.cancel(self.handle)
        self._next_status = 0.0
        return True

    def done(self) -> bool:
        """Return True if the job has ended.

        The end of a job that was killed may be noticed some seconds late, because the scheduler is
        queried with growing pauses.
        """
        if self._is_done:
            return True
        self._group.fetch()
        has_outcome = os.path.lexists(os.path.join(self.folder, OUTCOME))
        if has_outcome:
            # If the job has retries, another attempt may follow a failed one.
            self._is_done = not self._group.retries or has_result(self.folder) or self._has_ended()
        elif not self._group.has_folder(self._number) or self._is_cancelled_before_start():
            self._is_done = True
        elif self._has_ended() and self._end_seen is not None:
            waited = time.monotonic() - self._end_seen
            handle = self.handle
            is_remote = handle and not handle.startswith(_LOCAL)
            self._is_done = waited > _VISIBLE_SECONDS or not is_remote
        return self._is_done

    def _is_cancelled_before_start(self) -> bool:
        if self._has_started or not os.path.lexists(os.path.join(self.folder, CLAIM)):
            return False
        self._has_started = self._claim() == STARTED
        return not self._has_started

    def _claim(self) -> bytes:
        try:
            with open_call(self.folder) as folder:
                return folder.read(CLAIM)
        except FileNotFoundError:
            return b""

    def _has_ended(self) -> bool:
        """Return True if the job has ended according to the scheduler's last known status."""
        now = time.monotonic()
        if self._end_seen is not None:
            return True
        if now < self._next_status:
            return False
        try:
            end = self._group.end_of(self._number)
        except BackendError as e:
            logger.warning("the state of %s is unknown: %s", self._name(), one_line(e))
            end = None
        self._next_status = now + self._status_pause
        self._status_pause = min(self._status_pause * 1.5, _STATUS_PAUSES[1])
        if end is not None:
            self._end, self._end_seen = end, now
        return end is not None

    def result(self, timeout: float | None = None) -> R:
        """Wait for the result of the function, and return it.

        Args:
            timeout: How long to wait, in seconds; None means without a limit.

        Raises:
            Exception: The exception of the function. Its cause is the traceback in the job.
            NoResultError: The job ended without a readable outcome.
            RemoteError: The function could not be called, it ended the program, or its exception or
                its result cannot be pickled or unpickled.
            JobCancelledError: The job was cancelled.
            ResultTimeoutError: The timeout expired.
            UnsafeFolderError: Another user may have changed the result.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return cast("R", self._outcome[0])

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the job has ended; return its exception, or None if the job has a result.

        This method raises ``ResultTimeoutError`` and ``UnsafeFolderError``. It returns the other
        exceptions that :meth:`result` raises. See :meth:`result` for ``timeout``.
        """
        try:
            next(as_completed([self], timeout))
        except ResultTimeoutError:
            message = f"job {self._name()} has not ended after {timeout:g} s; it continues"
            raise ResultTimeoutError(message, self.handle) from None
        return self._outcome[1]

    @cached_property
    def _outcome(self) -> tuple[R | None, BaseException | None]:
        """The result or the exception of a job that has ended."""
        name, handle = self._name(), self.handle
        if self._group.retries:  # the known outcome may be that of an earlier attempt
            self._group.fetch(is_due=True)
        try:
            with open_call(self.folder) as folder:
                header, data = split_outcome(folder.read(OUTCOME))
        except FileNotFoundError:
            return None, self._no_result()
        except NoResultError as e:
            message = f"the outcome of job {name} in {self.folder} cannot be read: {e}"
            return None, NoResultError(message, handle)
        if not data:
            message = f"job {name} failed: {one_line(header.message)}; {self._log_hint()}"
            return None, _with_traceback(RemoteError(message, handle, header.type_name), header)
        try:
            value = pickle.loads(data)  # noqa: S301 - from a checked folder of this user
        except BaseException as e:  # an object may raise SystemExit, too
            trace = e.__traceback__
            if isinstance(e, KeyboardInterrupt) and not (trace and trace.tb_next):
                raise  # Ctrl-C; the code of an object would have a frame of its own
            message = (
                f"the {'result' if header.ok else f'exception {header.type_name}'} of job {name}"
                f" cannot be unpickled: {type(e).__name__}: {one_line(e)}; the job had"
                f" {header.versions}, this process has {Versions()}"
            )
            return None, _with_traceback(RemoteError(message, handle, header.type_name), header)
        if header.ok:
            return value, None
        if not isinstance(value, Exception):
            message = f"job {name} failed, but {self.folder} contains no exception"
            return None, RemoteError(message, handle, header.type_name)
        return None, _with_traceback(value, header)

    def _no_result(self) -> FunctionJobError:
        name, handle = self._name(), self.handle
        if not self._group.has_folder(self._number):
            return NoResultError(
                f"job {name} has no result: its folder {self.folder} was deleted", handle
            )
        if self._claim() == CANCELLED or self._end.startswith("CANCELLED"):
            return JobCancelledError(f"job {name} was cancelled", handle)
        from torchx_functions.group import NO_APP, NO_SWEEP

        hint = "" if self._end in (NO_APP, NO_SWEEP) else f"; {self._log_hint()}"
        return NoResultError(f"job {name} ended without a result ({self._end}){hint}", handle)

    def _log_hint(self) -> str:
        if self.handle:
            return f"torchx log {self.handle} shows its output"
        return f"torchx sweep log {self._group.handle} --element {self._number} shows its output"


def has_result(folder: str) -> bool:
    """Return True if a call has returned, and its result was recorded."""
    try:
        with open_call(folder) as call:
            return split_outcome(call.read(OUTCOME))[0].ok
    except (FileNotFoundError, NoResultError):  # another attempt has started, or damage
        return False


def _state_after(error: BaseException | None) -> AppState:
    if isinstance(error, JobCancelledError):
        return AppState.CANCELLED
    return AppState.SUCCEEDED if error is None else AppState.FAILED


def _with_traceback(error: BaseException, header: Header) -> BaseException:
    if header.traceback:
        error.__cause__ = RemoteTraceback(header.traceback)
    return error


def as_completed(jobs: Iterable[Job[R]], timeout: float | None = None) -> Iterator[Job[R]]:
    """Yield each job as soon as it has ended.

    Args:
        jobs: The jobs.
        timeout: How long to wait for all jobs, in seconds; None means without a limit.

    Raises:
        ResultTimeoutError: The timeout expired.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    waiting = list(dict.fromkeys(jobs))
    pause, longest = _PAUSES
    while waiting:
        ended = [job for job in waiting if job.done()]
        if ended:
            yield from ended
            found = set(ended)
            waiting = [job for job in waiting if job not in found]
            pause = _PAUSES[0]
            continue
        remaining = pause if deadline is None else deadline - time.monotonic()
        if remaining <= 0:
            raise ResultTimeoutError(f"{len(waiting)} jobs have not ended after {timeout:g} s")
        time.sleep(min(pause, remaining))
        pause = min(pause * 1.5, longest)
