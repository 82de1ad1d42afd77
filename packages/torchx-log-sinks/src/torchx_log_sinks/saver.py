"""Saves the logs of an app in a log sink, while the app runs or after it has ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_kit.retry import Backoff
from torchx_log_sinks.layout import (
    AppRecord,
    app_folder,
    read_record,
    replica_folder,
)
from torchx_log_sinks.writer import CopyWriter, LogChangedError
from torchx_specs.errors import BackendError, RequestError, TorchXError, one_line
from torchx_specs.model.status import AppState, AppStatus
from torchx_specs.schedulers import Stream

if TYPE_CHECKING:
    from torchx_log_sinks.sinks import ConfiguredSink
    from torchx_specs.model.app import AppDef
    from torchx_specs.schedulers.log_items import Replica

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How often new lines are stored, in seconds.
_FLUSH_SECONDS = 2.0
# How long to wait until the scheduler reports the end of an app whose logs have ended, in seconds.
_END_SECONDS = 10.0
_POLL_SECONDS = 0.2
# How many times to read a log that changes while it is read.
_MOST_RESTARTS = 3


class SinkError(BackendError):
    """A log sink failed."""


class LogSaver(threading.Thread):
    """Copies the logs of an app to one log sink, in a thread.

    Each line is copied once, even if an earlier process was killed while it saved these logs. An
    error ends the copying, and does not affect the app.

    Args:
        runner: The ``torchx_runner.Runner`` from which the logs are read.
        app_handle: The app, which has started.
        replicas: Role and index of each replica of the app.
        sink: The log sink.
        follow: Whether to continue until the app has ended.
        warns: Whether to log a warning if the copying fails; otherwise the caller reports it.
        retry_seconds: How long to retry a call of the sink that fails, in seconds.
        first_pause: The pause before the first retry, in seconds; it doubles each time.

    Attributes:
        sink: The log sink.
        error: The error that ended the copying, or None.
        is_complete: Whether the copy has all lines of an app that has ended.
    """

    def __init__(
        self,
        runner: Any,
        app_handle: str,
        replicas: Sequence[Replica],
        sink: ConfiguredSink,
        follow: bool,
        warns: bool = True,
        *,
        retry_seconds: float = 60.0,
        first_pause: float = 0.5,
    ) -> None:
        super().__init__(name=f"save-logs-{sink.name}", daemon=True)
        self.error: Exception | None = None
        self.is_complete = False
        self.sink = sink
        self._runner = runner
        self._app_handle = app_handle
        self._folder = app_folder(app_handle)
        self._replicas = list(replicas)
        self._follow = follow
        self._warns = warns
        self._retry_seconds = retry_seconds
        self._first_pause = first_pause
        self._writers: dict[tuple[Stream, Replica], CopyWriter] = {}
        self._read_again: dict[tuple[Stream, Replica], threading.Thread] = {}
        self._errors: list[Exception] = []
        self._sink_error: SinkError | None = None
        self._may_lack_lines = False
        self._stopped = threading.Event()

    @property
    def added(self) -> int:
        """The number of lines that were added to the copy."""
        return sum(writer.added for writer in list(self._writers.values()))

    def stop(self) -> None:
        """Stop saving; the next process saves the lines that are not stored yet."""
        self._stopped.set()

    def run(self) -> None:
        """Save the logs."""
        try:
            self._save()
        except Exception as e:  # an error of the copy must not affect the job
            self.error = e
            if self._warns:
                logger.warning(
                    "the copy of the logs of %s is incomplete: %s; 'torchx log --save' continues"
                    " it",
                    self._app_handle,
                    one_line(e),
                )

    def _save(self) -> None:
        record = self._call(read_record, self.sink.sink, self._folder)
        if record is not None and record.complete:
            self.is_complete = True
            return
        status: AppStatus | None = self._runner.status(self._app_handle)
        has_ended = status is not None and status.is_terminal()
        # Some services store the last lines after the end of the app; a follower waits for them.
        self._follow = self._follow or has_ended
        # A copy can be continued only if its lines always come in the same order. If the scheduler
        # mixes the two streams in another order each time, each stream gets its own copy.
        repeats = self._runner.features(self._app_handle.partition("://")[0]).log_order
        streams = [Stream.COMBINED] if repeats else [Stream.STDOUT, Stream.STDERR]
        record = self._new_record(streams)
        self._call(record.write, self.sink.sink, self._folder)
        self._open_writers(streams)
        threading.Thread(target=self._flush_regularly, name="flush-logs", daemon=True).start()
        readers = [threading.Thread(target=self._read, args=(s,), daemon=True) for s in streams]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        for thread in list(self._read_again.values()):
            thread.join()
        if self._sink_error is not None:
            raise self._sink_error
        if self._stopped.is_set():
            return
        if self._follow and not self._errors:
            with suppress(TimeoutError):  # the logs may end before the scheduler reports the end
                self._runner.wait(self._app_handle, _POLL_SECONDS, timeout=_END_SECONDS)
            status = self._runner.status(self._app_handle)
            has_ended = status is not None and status.is_terminal()
        is_complete = has_ended and not self._errors
        for stream, replica in self._writers:
            self._finish_writer(stream, replica, is_complete)
        if self._errors:
            raise self._errors[0]
        if is_complete and not self._may_lack_lines and status is not None:
            record.state = status.state.name
            record.failed = [
                (role.role, replica.id)
                for role in status.roles
                for replica in role.replicas
                if replica.state == AppState.FAILED
            ]
            record.complete = True
            self._call(record.write, self.sink.sink, self._folder)
            self.is_complete = True

    def _new_record(self, streams: Sequence[Stream]) -> AppRecord:
        app: AppDef | None = self._runner.describe(self._app_handle)
        roles: dict[str, int] = {} if app is None else {r.name: r.num_replicas for r in app.roles}
        for role, index in self._replicas:
            roles[role] = max(roles.get(role, 0), index + 1)
        name = app.name if app is not None else ""
        return AppRecord(self._app_handle, name, roles, [stream.value for stream in streams])

    def _open_writers(self, streams: Sequence[Stream]) -> None:
        names = self._call(lambda: list(self.sink.sink.list(self._folder)))
        write = partial(self._call, self.sink.sink.write)
        read = partial(self._call, self.sink.sink.read)
        for stream in streams:
            for role, index in self._replicas:
                folder = replica_folder(self._folder, role, index)
                writer = CopyWriter(write, read, names, folder, stream.value)
                self._writers[stream, (role, index)] = writer

    # -- reading logs from the scheduler

    def _read(self, stream: Stream) -> None:
        try:
            with closing(self._blocks(stream, self._replicas, self._follow)) as blocks:
                for replica, block in blocks:
                    if self._stopped.is_set():
                        return
                    if isinstance(block, Exception):
                        self._errors.append(block)
                    elif (stream, replica) not in self._read_again:
                        try:
                            self._writers[stream, replica].add(block)
                        except LogChangedError:
                            key = stream, replica
                            thread = threading.Thread(target=self._reread, args=key, daemon=True)
                            self._read_again[key] = thread
                            thread.start()
        except Exception as e:
            self._add_error(e)

    def _reread(self, stream: Stream, replica: Replica) -> None:
        """Read the log of one replica from its beginning, for a new generation of the copy."""
        writer = self._writers[stream, replica]
        try:
            for _ in range(_MOST_RESTARTS):
                found = writer.restart(_lines(self._blocks(stream, [replica], False)))
                self._may_lack_lines |= not found
                try:
                    for line in _lines(self._blocks(stream, [replica], self._follow)):
                        if self._stopped.is_set():
                            return
                        writer.add([line])
                except LogChangedError:
                    continue
                return
            raise BackendError(f"the log of {replica[0]}/{replica[1]} changes while it is read")
        except Exception as e:
            self._add_error(e)

    def _blocks(
        self, stream: Stream, replicas: Sequence[Replica], follow: bool
    ) -> Generator[tuple[Replica, Iterable[str] | Exception], None, None]:
        yield from self._runner.log_blocks(
            self._app_handle, replicas, should_tail=follow, streams=stream
        )

    def _finish_writer(self, stream: Stream, replica: Replica, is_complete: bool) -> None:
        writer = self._writers[stream, replica]
        try:
            writer.finish(is_complete)
        except LogChangedError:  # the log was rotated, so it has fewer lines than the copy
            self._follow = False
            self._reread(stream, replica)
            with suppress(LogChangedError):  # the log has no line that the copy lacks
                writer.finish(is_complete)

    # -- writing to the sink, and reading from it

    def _add_error(self, error: Exception) -> None:
        """Record an error of a log or of the sink; an error of the sink ends the copying."""
        if isinstance(error, SinkError):
            self._sink_error = error
            self._stopped.set()
        else:
            self._errors.append(error)

    def _flush_regularly(self) -> None:
        while self.is_alive() and not self._stopped.wait(_FLUSH_SECONDS):
            try:
                for writer in self._writers.values():
                    writer.flush()
            except Exception as e:
                self._add_error(e)

    def _call(self, function: Callable[..., T], *args: Any) -> T:
        """Call the sink; if the call fails, retry it for ``retry_seconds``.

        A RequestError is not retried, and :meth:`stop` ends the retries.

        Raises:
            SinkError: The last attempt failed.
        """
        limit = self._retry_seconds
        backoff = Backoff(
            limit, first_pause=self._first_pause, longest_pause=limit, sleep=self._stopped.wait
        )
        while True:
            try:
                return function(*args)
            except Exception as e:
                kind = "" if isinstance(e, TorchXError) else f"{type(e).__name__}: "
                error = SinkError(f"{self.sink}: {kind}{one_line(e)}")
                # A RequestError is permanent: for example, a library is missing.
                if isinstance(e, RequestError) or self._stopped.is_set():
                    raise error from e
                backoff.pause_after(error)


def _lines(
    blocks: Generator[tuple[Replica, Iterable[str] | Exception], None, None],
) -> Iterator[str]:
    """Yield the lines of one replica's log; raise the error that ended the log."""
    with closing(blocks):
        for _, block in blocks:
            if isinstance(block, Exception):
                raise block
            yield from block
