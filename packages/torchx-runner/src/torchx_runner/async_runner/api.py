"""The runner's methods as coroutines, which a synchronous runner executes in a few threads."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import functools
import logging
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

from torchx_runner.api import Runner, get_runner, sweep_module
from torchx_runner.wait_for_state import FIRST_PAUSE, WaitTimeoutError, has_reached
from torchx_specs.model.handles import AppHandle, make_app_handle, parse_app_handle
from torchx_specs.model.status import AppState, AppStatus
from torchx_specs.schedulers.closing import ClosedError, Closing, closing_of
from torchx_specs.schedulers.older import features_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import ParamSpec, Self

    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.workspace import Workspace

    P = ParamSpec("P")

R = TypeVar("R")

#: The number of threads that carry out requests.
DEFAULT_THREADS = 8
#: The longest pause between two polls of a scheduler that can watch apps, in seconds.
_WATCHED_PAUSE = 1.0
#: If there are at least this many waits, list the scheduler's apps first, to query fewer of them.
LIST_FROM = 16
# Each pause between two polls is longer than the previous one by this factor.
_GROWTH = 1.5
# The longest pause between two queries of a sweep, in seconds.
_LONGEST_SWEEP_PAUSE = 2.0
# The thread of an iterator stops reading while this many items wait for the coroutine.
_MAX_BUFFERED = 1024

logger = logging.getLogger(__name__)


def _in_thread(
    method: Callable[Concatenate[Runner, P], R], *, submits: bool = False
) -> Callable[Concatenate[AsyncRunner, P], Coroutine[Any, Any, R]]:
    """Return a method of the runner as a coroutine function.

    Args:
        method: The method.
        submits: Whether the method submits an app, which is deleted if the task is cancelled.
    """

    @functools.wraps(method)
    async def call(self: AsyncRunner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        # Look the method up on the instance, because a subclass of Runner may override it.
        bound: Any = functools.partial(getattr(self.runner, method.__name__), *args, **kwargs)
        result: Any = await (self._submit(bound) if submits else self._call(bound))
        return result  # type: ignore[no-any-return]

    return call


class AsyncRunner:
    """Submits components and apps, and manages submitted apps, in a program that uses asyncio.

    >>> from torchx_runner import AsyncRunner
    >>> async def main(app):
    ...     async with AsyncRunner() as runner:
    ...         handle = await runner.run(app, "local_cwd")
    ...         async for line in runner.log_lines(handle, "main", should_tail=True):
    ...             print(line, end="")
    ...         return await runner.wait(handle)

    Most methods of :class:`torchx_runner.Runner` exist here, with the same errors and almost the
    same arguments. A synchronous runner carries them out in a few threads.

    - **Cancellation.** If a task is cancelled while it submits an app, the cancellation waits for
      the end of the submission, and then deletes the app. So no app is left without its handle.
    - **Waits.** A wait needs no thread. One task for each scheduler polls all apps with a wait. If
      there are many such apps, the task lists the scheduler's apps instead of querying each one.
    - **Logs.** Each log that is read has a thread until its end. If a program stops reading a
      followed log early, the thread continues until the next line or the end of the app.

    An object belongs to one event loop. Close it with ``async with`` or :meth:`close`.

    Args:
        runner: The synchronous runner; by default, the result of :func:`get_runner`. Closing this
            object closes the runner, too.
        threads: How many requests are carried out at the same time.
    """

    def __init__(self, runner: Runner | None = None, *, threads: int = DEFAULT_THREADS) -> None:
        self.runner = get_runner() if runner is None else runner
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="torchx async")
        self._waits: dict[str, Waits] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel all waits, and close the runner; see :meth:`torchx_runner.Runner.close`."""
        for waits in self._waits.values():
            waits.close()
        self._waits.clear()
        try:
            await self._call(self.runner.close)
        finally:
            self._pool.shutdown(wait=False)

    def name(self) -> str:
        """Return the name of the session."""
        return self.runner.name()

    # -- submitting

    run_component = _in_thread(Runner.run_component, submits=True)
    schedule = _in_thread(Runner.schedule, submits=True)

    async def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
    ) -> AppHandle:
        """Submit an app, and return its handle; see :meth:`torchx_runner.Runner.run`.

        Args:
            app: The app.
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler.
            workspace: Replaces the workspace of the first role; None keeps that workspace.
            parent_run_id: The id of the parent run, for the job's trackers.
        """
        return await self._submit(
            functools.partial(self.runner.run, app, scheduler, cfg, workspace, parent_run_id)
        )

    async def sweep(
        self,
        component: str,
        component_args: Sequence[str],
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        **options: Any,
    ) -> AppHandle:
        """Submit a component once for each set of parameters, and return the sweep's handle.

        The arguments are those of :meth:`torchx_runner.Runner.sweep`. The sweep continues after
        this object is closed. If the task is cancelled before the method returns, the sweep is
        deleted.

        Raises:
            RequestError: ``torchx-sweep`` is not installed, or elements are invalid; the message
                has the problems of all elements.
        """
        submit = functools.partial(
            self.runner.sweep, component, list(component_args), scheduler, cfg, **options
        )
        return await self._submit(submit, self._delete_sweep)

    async def map(
        self,
        component: str,
        parameters: Iterable[Mapping[str, Any]],
        component_args: Sequence[str] = (),
        scheduler: str = "local_cwd",
        cfg: Mapping[str, CfgVal] | None = None,
        **options: Any,
    ) -> builtins.list[Any]:
        """Run a component once for each set of parameters, and wait until all elements have ended.

        If the task is cancelled, the sweep is cancelled, too; during the submission, it is deleted.
        If this fails, the log has the reason.

        >>> async def train(runner):
        ...     for element in await runner.map("train.py:train", [{"lr": 0.1}, {"lr": 0.01}]):
        ...         print(element.parameters, element.state.value, element.handle)

        Args:
            component: The component, as for :meth:`run_component`.
            parameters: The parameters of each element.
            component_args: Arguments that all elements share, as on a command line.
            scheduler: Name of the scheduler, or several names, as for :meth:`sweep`.
            cfg: Options of the scheduler.
            options: Other options of ``torchx_sweep.plan``, such as ``max_parallel``.

        Returns:
            The elements in the order of the parameters, as ``torchx_sweep.ElementRecord``. An
            element that failed has the state ``FAILED``, and no exception is raised.

        Raises:
            RequestError: ``torchx-sweep`` is not installed, or elements are invalid; the message
                has the problems of all elements.
        """
        rows = [dict(values) for values in parameters]
        handle = await self.sweep(component, component_args, scheduler, cfg, rows=rows, **options)
        module = sweep_module()
        pause = FIRST_PAUSE
        try:
            while (await self._call(functools.partial(module.status, handle, 0))).is_unfinished:
                await asyncio.sleep(pause)
                pause = min(pause * _GROWTH, _LONGEST_SWEEP_PAUSE)
        except asyncio.CancelledError:
            cancellation = self._call(functools.partial(module.cancel, handle))
            await _finish(_logging_failure(cancellation, f"{handle} was not cancelled"))
            raise
        elements: builtins.list[Any] = await self._call(functools.partial(module.results, handle))
        return elements

    async def _delete_sweep(self, handle: AppHandle) -> None:
        await self._call(functools.partial(sweep_module().delete, handle, self.runner))

    materialize = _in_thread(Runner.materialize)
    dryrun = _in_thread(Runner.dryrun)
    dryrun_component = _in_thread(Runner.dryrun_component)
    build_workspace = _in_thread(Runner.build_workspace)

    # -- schedulers

    def scheduler_backends(self) -> list[str]:
        """Return the names of the available schedulers."""
        return self.runner.scheduler_backends()

    scheduler_run_opts = _in_thread(Runner.scheduler_run_opts)
    cfg_from_str = _in_thread(Runner.cfg_from_str)
    lives_in_client = _in_thread(Runner.lives_in_client)
    features = _in_thread(Runner.features)

    # -- submitted apps

    status = _in_thread(Runner.status)
    exists = _in_thread(Runner.exists)
    cancel = _in_thread(Runner.cancel)
    cancel_many = _in_thread(Runner.cancel_many)
    kill = _in_thread(Runner.kill)
    delete = _in_thread(Runner.delete)
    describe = _in_thread(Runner.describe)
    describe_native = _in_thread(Runner.describe_native)
    list = _in_thread(Runner.list)
    gpus = _in_thread(Runner.gpus)

    # -- inside a replica; the returned session, socket or archive has blocking methods

    open_session = _in_thread(Runner.open_session)
    open_port = _in_thread(Runner.open_port)
    read_archive = _in_thread(Runner.read_archive)
    write_archive = _in_thread(Runner.write_archive)

    # -- waiting and logs

    async def wait(
        self,
        app_handle: AppHandle,
        wait_interval: float = 10,
        *,
        timeout: float | None = None,
        until: AppState | None = None,
    ) -> AppStatus | None:
        """Wait until an app has ended; return its status, or None if it does not exist.

        Args:
            app_handle: The app.
            wait_interval: The longest time between two polls, in seconds; at most one second for a
                scheduler that can watch apps.
            timeout: How long to wait, in seconds; None means without a limit.
            until: A state at which to return early; None waits for the end.

        Raises:
            WaitTimeoutError: The timeout expired; ``status`` is the last known status.
            ClosedError: Another thread closed the runner or the scheduler.
        """
        name = parse_app_handle(app_handle).scheduler_backend
        backend = await self._call(functools.partial(self.runner.scheduler, name))
        if features_of(backend).watch:
            wait_interval = min(wait_interval, _WATCHED_PAUSE)
        waits = self._waits.setdefault(name, Waits(self, name))
        return await waits.wait(app_handle, until, wait_interval, timeout, closing_of(backend))

    def log_lines(
        self, app_handle: AppHandle, role_name: str, k: int = 0, **options: Any
    ) -> AsyncIterator[str]:
        """Return the log lines of one replica as an asynchronous iterator.

        Args:
            app_handle: The app.
            role_name: The role.
            k: Index of the replica within its role.
            options: Other arguments of :meth:`torchx_runner.Runner.log_lines`, by name.
        """
        return iterate(
            functools.partial(self.runner.log_lines, app_handle, role_name, k, **options)
        )

    def log_blocks(
        self, app_handle: AppHandle, replicas: Iterable[tuple[str, int]], **options: Any
    ) -> AsyncIterator[tuple[tuple[str, int], Iterable[str] | Exception]]:
        """Return blocks of log lines of several replicas as an asynchronous iterator.

        Args:
            app_handle: The app.
            replicas: Role and index of each replica.
            options: Other arguments of :meth:`torchx_runner.Runner.log_blocks`, by name.
        """
        return iterate(functools.partial(self.runner.log_blocks, app_handle, replicas, **options))

    # -- threads

    async def _call(self, function: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def _submit(
        self,
        function: Callable[[], AppHandle],
        delete: Callable[[AppHandle], Coroutine[Any, Any, None]] | None = None,
    ) -> AppHandle:
        """Submit an app in a thread. If this task is cancelled, delete the app.

        Args:
            function: Submits the app.
            delete: Deletes the app; None means :meth:`delete`.
        """
        submission = self._pool.submit(function)
        future = asyncio.wrap_future(submission)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            # A submission that has begun cannot be interrupted without leaving parts of the app.
            if not submission.cancel():
                await _finish(self._undo(future, delete or self.delete))
            raise

    async def _undo(
        self,
        future: asyncio.Future[AppHandle],
        delete: Callable[[AppHandle], Coroutine[Any, Any, None]],
    ) -> None:
        """Wait for a submission, and delete its app."""
        try:
            handle = await future
        except Exception:  # the submission failed, so there is no app to delete
            return
        await _logging_failure(delete(handle), f"{handle} was not deleted")


async def _logging_failure(coroutine: Coroutine[Any, Any, None], failure: str) -> None:
    """Run a coroutine, and log its error, so that the caller can raise a ``CancelledError``.

    Args:
        coroutine: The coroutine.
        failure: What failed, for the log message, such as ``slurm://s/1 was not deleted``.
    """
    try:
        await coroutine
    except Exception as e:
        logger.warning("the task was cancelled, but %s: %s", failure, e)


async def _finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, even if the calling task is cancelled again."""
    task = asyncio.ensure_future(coroutine)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue


async def iterate(make: Callable[[], Iterable[R]]) -> AsyncIterator[R]:
    """Yield the items of an iterator that a thread reads.

    The thread is a daemon. If the coroutine stops early, the thread ends at the next item.

    Args:
        make: Returns the iterator; called in the thread.

    Raises:
        Exception: The exception of ``make`` or of the iterator.
    """
    loop = asyncio.get_running_loop()
    # Items in tuples, and last the error that ended the iterator, or None.
    found: asyncio.Queue[tuple[R] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(_MAX_BUFFERED)
    stopped = threading.Event()

    def read() -> None:
        error: BaseException | None = None
        try:
            for item in make():
                room.acquire()
                if stopped.is_set():
                    break
                loop.call_soon_threadsafe(found.put_nowait, (item,))
        except BaseException as e:
            error = e
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits
            loop.call_soon_threadsafe(found.put_nowait, error)

    threading.Thread(target=read, name="torchx async log", daemon=True).start()
    try:
        while isinstance(item := await found.get(), tuple):
            yield item[0]
            room.release()
        if item is not None:
            raise item
    finally:
        stopped.set()
        room.release()


class Waits:
    """The waits for the apps of one scheduler: no wait has a thread, and one list serves all waits.

    Args:
        runner: The runner of the apps.
        scheduler: Name of the scheduler.
    """

    def __init__(self, runner: AsyncRunner, scheduler: str) -> None:
        self._runner = runner
        self._scheduler = scheduler
        self._waits: set[asyncio.Future[None]] = set()
        self._listing: asyncio.Task[dict[AppHandle, AppState]] | None = None
        self._listed_at = 0.0

    async def wait(
        self,
        handle: AppHandle,
        until: AppState | None,
        longest: float,
        timeout: float | None,
        closing: Closing,
    ) -> AppStatus | None:
        """Wait until an app has ended or reached a state; return its status, or None if missing.

        Args:
            handle: The app.
            until: A state at which to return early; None waits for the end.
            longest: The longest pause between two polls, in seconds.
            timeout: How long to wait, in seconds; None means without a limit.
            closing: Ends the wait when the scheduler is closed.

        Raises:
            WaitTimeoutError: The timeout expired.
            ClosedError: The scheduler was closed.
        """
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        closed: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not closed.done():
                closed.set_result(None)

        def close() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so no coroutine waits
                loop.call_soon_threadsafe(end)

        self._waits.add(closed)
        try:
            with closing.calling(close):
                pause = FIRST_PAUSE
                while True:
                    is_closed = closed.done()
                    is_late = deadline is not None and loop.time() >= deadline
                    listed = None if is_closed or is_late else (await self._listed()).get(handle)
                    if listed is None or has_reached(listed, until):
                        status = await self._runner.status(handle)
                        if status is None or has_reached(status.state, until):
                            return status
                        if is_closed:
                            raise ClosedError()
                        if is_late:
                            raise WaitTimeoutError(handle, timeout or 0, status)
                    # All waits with the same pause end it at the same time, so that they use one
                    # list of apps.
                    due = loop.time() // pause * pause + pause
                    due = due if deadline is None else min(due, deadline)
                    await asyncio.wait({closed}, timeout=max(due - loop.time(), 0))
                    if closed.cancelled():
                        raise asyncio.CancelledError
                    pause = min(pause * _GROWTH, longest)
        finally:
            self._waits.discard(closed)

    def close(self) -> None:
        """Cancel all waits."""
        for future in (*self._waits, self._listing):
            if future is not None:
                future.cancel()

    async def _listed(self) -> dict[AppHandle, AppState]:
        """Return the states of the listed apps; an empty dictionary if there are few waits.

        Apps that are not listed are queried one by one, because a scheduler may fail to list its
        apps, or list only some of them.
        """
        if len(self._waits) < LIST_FROM:
            return {}
        age = asyncio.get_running_loop().time() - self._listed_at
        if self._listing is None or (self._listing.done() and age > FIRST_PAUSE):
            self._listing = asyncio.create_task(self._list())
        return await asyncio.shield(self._listing)

    async def _list(self) -> dict[AppHandle, AppState]:
        scheduler, session = self._scheduler, self._runner.name()
        try:
            apps = await self._runner.list(scheduler)
        except Exception:
            return {}
        finally:
            self._listed_at = asyncio.get_running_loop().time()
        return {make_app_handle(scheduler, session, app.app_id): app.state for app in apps}
