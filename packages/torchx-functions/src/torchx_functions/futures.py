"""An executor of :mod:`concurrent.futures`, for programs and libraries that accept one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from torchx_functions.errors import JobCancelledError
from torchx_functions.executor import Executor
from torchx_functions.job import Job

P = ParamSpec("P")
R = TypeVar("R")

_PAUSES = (0.005, 0.5)


class JobFuture(Future[R]):
    """The future of a :class:`Job`; the attribute ``job`` contains this job.

    ``cancel`` also cancels a running job. Futures of threads and processes cannot do this.
    """

    def __init__(self, job: Job[R]) -> None:
        super().__init__()
        self.job = job

    def cancel(self) -> bool:
        """Cancel the job; return False if it has ended without being cancelled."""
        if self.done():
            return self.cancelled()
        return self.job.cancel() and super().cancel()


class FutureExecutor(StandardExecutor):
    """Runs functions as jobs, and returns futures of :mod:`concurrent.futures`.

    >>> from torchx_functions import Executor, FutureExecutor
    >>> with FutureExecutor(Executor(scheduler="slurm")) as pool:  # doctest: +SKIP
    ...     list(pool.map(abs, [-1, -2]))
    [1, 2]

    While there are unfinished jobs, one thread of the executor polls them.

    Args:
        executor: Submits the jobs; the default is local jobs.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self._executor = executor or Executor()
        self._lock = threading.Lock()
        self._watched: list[JobFuture[Any]] = []
        self._thread: threading.Thread | None = None
        self._is_shut_down = False

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> JobFuture[R]:
        """Run ``fn(*args, **kwargs)`` as a job, and return its future."""
        self._check_open()
        return self._watch([self._executor.submit(fn, *args, **kwargs)])[0]

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[R]:
        """Return the results in the order of the arguments; all calls are submitted together.

        Args:
            fn: The function.
            iterables: The arguments. Elements after the end of the shortest iterable are ignored.
            timeout: How long to wait for all results, in seconds; None means without a limit.
            chunksize: Ignored, because each call is a job.
            options: Options of newer versions of Python, which are ignored, too.
        """
        self._check_open()
        calls = list(zip(*iterables, strict=False))
        jobs = self._executor.map_array(fn, *zip(*calls, strict=True)) if calls else []
        futures = self._watch(jobs)
        deadline = None if timeout is None else time.monotonic() + timeout

        def results() -> Iterator[R]:
            for future in futures:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                yield future.result(left)

        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no more functions.

        Args:
            wait: Whether to wait for all jobs. Otherwise they continue.
            cancel_futures: Whether to cancel the jobs that have not ended.
        """
        with self._lock:
            self._is_shut_down = True
            watched, thread = list(self._watched), self._thread
        if cancel_futures:
            for future in watched:
                future.cancel()
        if wait and thread is not None:
            thread.join()

    def _check_open(self) -> None:
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _watch(self, jobs: list[Job[R]]) -> list[JobFuture[R]]:
        futures = [JobFuture(job) for job in jobs]
        with self._lock:
            self._watched += futures
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._settle_all, name="torchx-functions", daemon=True
                )
                self._thread.start()
        return futures

    def _settle_all(self) -> None:
        pause, longest = _PAUSES
        ended: set[JobFuture[Any]] = set()
        while True:
            with self._lock:
                self._watched = [future for future in self._watched if future not in ended]
                if not self._watched:
                    self._thread = None
                    return
                watched = list(self._watched)
            ended = {future for future in watched if _settle(future)}
            pause = _PAUSES[0] if ended else min(pause * 1.5, longest)
            time.sleep(pause)


def _settle(future: JobFuture[Any]) -> bool:
    """If a future's job has ended, set the outcome of the future and return True, else False."""
    job = future.job
    try:
        if not (future.cancelled() or job.done()):
            return False
        error = None if future.cancelled() else job.exception()
    except Exception as e:  # for example, UnsafeFolderError
        error = e
    if isinstance(error, JobCancelledError):
        Future.cancel(future)
    if future.set_running_or_notify_cancel():  # only this call wakes the callers of wait()
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(job.result())
    return True
