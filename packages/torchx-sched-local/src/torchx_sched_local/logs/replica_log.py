"""Finds and reads the log of a replica."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from torchx_kit.logs.file_logs import FileLog, Tail, file_log_blocks, log_lines, merged
from torchx_kit.role_checks import check_replica
from torchx_sched_local.errors import NoLogError
from torchx_sched_local.logs.combined import RecordedTimes, attempt_begins, missing_lines
from torchx_sched_local.store.layout import COMBINED_LOG, STDERR_LOG, STDOUT_LOG
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.closing import Closing, closing_of
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from torchx_sched_local.request import PopenRequest
    from torchx_sched_local.scheduler import LocalScheduler
    from torchx_specs.schedulers.log_items import Block, Replica

_FILES = {Stream.STDOUT: STDOUT_LOG, Stream.STDERR: STDERR_LOG, Stream.COMBINED: COMBINED_LOG}


def replica_lines(
    path: str,
    query: LogQuery,
    is_finished: Callable[[], bool],
    journal: str | None = None,
    may_be_missing: bool = False,
    closing: Closing | None = None,
) -> FileLog:
    """Return lines of a log of a replica.

    Args:
        path: Path of the log file.
        query: Which lines to return.
        is_finished: Returns True once nothing more is written to the log.
        journal: Path of the app's journal, which changes when the replica ends; None if the app has
            no journal.
        may_be_missing: Whether a missing file means an empty log instead of an error. Set this only
            for a log to which nothing more is written.
        closing: Ends a followed log when the scheduler is closed; None if that ends the app.
    """
    folder, name = os.path.split(path)
    tail = rest = None
    last, should_tail = query.last, query.should_tail
    if name == COMBINED_LOG:
        rest = partial(_rest, path, query, is_finished)
        if missing_lines(folder) and is_finished():
            should_tail = True  # only a followed log has a rest
            if last is not None:
                lines = deque(chain.from_iterable(rest()), maxlen=last)
                last -= len(lines)
                rest = partial(iter, [lines])
    attempts = None
    if query.attempts and name in _FILES.values():
        attempts = partial(attempt_begins, folder, name)
    # With a Tail, a missing file is not an error.
    is_followed = should_tail or may_be_missing
    if is_followed or (attempts is not None and attempts()):
        watch = [journal] if journal else []
        # The supervisor merges the whole lines of these files into the combined log.
        streams = [STDOUT_LOG, STDERR_LOG] if name == COMBINED_LOG else []
        tail = Tail(
            is_finished if is_followed else lambda: True,
            watch,
            2.0 if watch else 0.2,
            partial=query.partial,
            sources=[os.path.join(folder, stream) for stream in streams],
            closing=closing,
            rest=rest,
            attempts=attempts,
        )
    times = RecordedTimes(folder, name) if name in _FILES.values() else None
    return log_lines(
        path, query.regex, since=query.since, until=query.until, times=times, tail=tail, last=last
    )


def _rest(path: str, query: LogQuery, is_finished: Callable[[], bool]) -> Iterator[Iterable[str]]:
    """Yield the lines that the combined log of an ended replica lacks, and warn of that."""
    missing = missing_lines(os.path.dirname(path)) if is_finished() else []
    if not missing:
        return
    logging.getLogger(__name__).warning(
        "%s is incomplete, because it could not be written (the disk may have been full); the rest"
        " of the lines comes from the logs of both streams, and its order is not known",
        path,
    )
    tail = Tail(lambda: True)
    logs = []
    for stream, begin in missing:
        written = os.stat(stream).st_mtime
        is_late = query.since is None or written >= query.since.timestamp()
        if is_late and (query.until is None or written < query.until.timestamp()):
            logs.append(FileLog(stream, None, tail, None, begin=begin))
    if logs:
        yield merged(logs)


def log_path(request: PopenRequest, role: str, k: int, stream: Stream | None) -> str:
    """Return the path of a replica's log.

    Args:
        request: The app's request.
        role: The role's name.
        k: Index of the replica in the role.
        stream: The stream; None means both.

    Raises:
        UnknownReplicaError: There is no such replica.
        NoLogError: The replica writes no such log.
    """
    counts = {name: len(params) for name, params in request.role_params.items()}
    check_replica(request.app_id, counts, role, k)
    param = request.role_params[role][k]
    paths = {Stream.STDOUT: param.stdout, Stream.STDERR: param.stderr}
    path = paths.get(stream or Stream.COMBINED, param.combined)
    if path is None:
        raise NoLogError(
            f"replica {role}/{k} of app {request.app_id} was not configured to log into a file"
        )
    return path


class LocalLogs(Logs["LocalScheduler"]):
    """Reads the log files of local apps; see :class:`Logs`."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> FileLog:
        """Return lines of the log of one replica; see :meth:`Logs.read`.

        Raises:
            UnknownAppException: There is no such app; the error is also a KeyError.
            RequestError: The app has no such role or replica.
            BackendError: The replica has no such log, or the app's record cannot be read.
        """
        return self._lines(app_id, role, k, query, closing_of(self.scheduler))

    def read_many(
        self, app_id: str, replicas: Iterable[Replica], query: LogQuery
    ) -> Iterator[Block]:
        """Return blocks of log lines of several replicas, all read by the calling thread."""
        closing = closing_of(self.scheduler)

        def find_log(role: str, k: int) -> FileLog | Exception:
            try:
                return self._lines(app_id, role, k, query, closing)
            except Exception as e:  # the consumer decides how to handle the error
                return e

        logs = (((role, k), find_log(role, k)) for role, k in replicas)
        return file_log_blocks(logs, should_tail=query.should_tail)

    def _lines(self, app_id: str, role: str, k: int, query: LogQuery, closing: Closing) -> FileLog:
        local_app = self.scheduler._own_app(app_id)
        if local_app is not None and local_app.supervision is None:
            counts = {name: len(found) for name, found in local_app.role_replicas.items()}
            check_replica(local_app.id, counts, role, k)
            name = _FILES[query.streams or Stream.COMBINED]
            path = os.path.join(local_app.log_dir, role, str(k), name)
            return replica_lines(path, query, lambda: self._has_ended(app_id))
        # Closing the scheduler ends the apps of this process, and thereby their logs.
        ends = closing if local_app is None else None
        return self.scheduler._existing(app_id).log(role, k, query, ends)

    def _has_ended(self, app_id: str) -> bool:
        found = self.scheduler.describe(app_id)
        return found is None or is_terminal(found.state)
