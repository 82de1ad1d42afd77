"""Finding the log of a replica."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchx_kit.logs.file_logs import FileLog, Tail, log_lines
from torchx_kit.role_checks import check_replica
from torchx_sched_local.errors import NoLogError
from torchx_sched_local.logs.combined import RecordedTimes
from torchx_sched_local.store.layout import COMBINED_LOG, STDERR_LOG, STDOUT_LOG
from torchx_specs.schedulers.api import Stream

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_sched_local.request import PopenRequest
    from torchx_sched_local.supervise.replicas import _LocalAppDef

_FILES = {Stream.STDOUT: STDOUT_LOG, Stream.STDERR: STDERR_LOG, Stream.COMBINED: COMBINED_LOG}


class ReplicaLog:
    """The log of a replica.

    Args:
        path: its file
        is_finished: returns True once nothing more is written to it
        journal: path of the app's journal, whose change may mean that; None if it has none
    """

    def __init__(
        self, path: str, is_finished: Callable[[], bool], journal: str | None = None
    ) -> None:
        self._path = path
        self._is_finished = is_finished
        self._journal = journal

    def lines(
        self,
        regex: str | None,
        since: datetime | None,
        until: datetime | None,
        should_tail: bool,
    ) -> FileLog:
        """Returns its lines, see :meth:`Scheduler.log_iter`."""
        tail = None
        if should_tail:
            watch = [self._journal] if self._journal else []
            # where there is a journal, a look at what is known tells
            tail = Tail(
                self._is_finished,
                watch,
                check_every=2.0 if watch else 0.2,
                is_quick=bool(watch),
            )
        folder, name = os.path.split(self._path)
        times = RecordedTimes(folder, name) if name in _FILES.values() else None
        return log_lines(self._path, regex, since=since, until=until, times=times, tail=tail)


def log_path(request: PopenRequest, role: str, k: int, stream: Stream | None) -> str:
    """Returns the path of a log.

    Raises:
        UnknownReplicaError: there is no such replica
        NoLogError: it was not made to write one
    """
    counts = {name: len(params) for name, params in request.role_params.items()}
    check_replica(request.app_id, counts, role, k)
    param = request.role_params[role][k]
    paths = {Stream.STDOUT: param.stdout, Stream.STDERR: param.stderr}
    path = paths.get(stream or Stream.COMBINED, param.combined)
    if path is None:
        raise NoLogError(
            f"{role}/{k} of app {request.app_id} was not configured to log into a file"
        )
    return path


def own_log_path(app: _LocalAppDef, role: str, k: int, stream: Stream | None) -> str:
    """Returns the path of a log of an app that a subclass has started in its own way.

    Raises:
        UnknownReplicaError: there is no such replica
    """
    counts = {name: len(replicas) for name, replicas in app.role_replicas.items()}
    check_replica(app.id, counts, role, k)
    return os.path.join(app.log_dir, role, str(k), _FILES[stream or Stream.COMBINED])
