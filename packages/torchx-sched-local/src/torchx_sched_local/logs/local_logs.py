"""Reads the logs of local apps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torchx_kit.logs.blocks import file_log_blocks
from torchx_sched_local.errors import UnknownLocalAppError
from torchx_sched_local.logs.replica_log import ReplicaLog, conventional_log_path
from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.closing import Closing, closing_of
from torchx_specs.schedulers.log_items import Block, Replica
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from torchx_kit.logs.file_logs import FileLog


class LocalLogs(Logs[LocalScheduler]):
    """Reads the log files of local apps; see :class:`Logs`."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
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
        """Return blocks of log lines of several replicas; see :meth:`Logs.read_many`.

        One thread reads all log files, unless a subclass of the scheduler started the app without a
        supervision.
        """
        own_app = self.scheduler._own_app(app_id)
        if own_app is not None and own_app.supervision is None:
            return super().read_many(app_id, replicas, query)
        closing = closing_of(self.scheduler)

        def find_log(role: str, k: int) -> FileLog | Exception:
            try:
                return self._lines(app_id, role, k, query, closing)
            except Exception as e:  # the consumer decides how to handle the error
                return e

        logs = (((role, k), find_log(role, k)) for role, k in replicas)
        return file_log_blocks(logs, should_tail=query.should_tail)

    def _lines(self, app_id: str, role: str, k: int, query: LogQuery, closing: Closing) -> FileLog:
        return self._find(app_id, role, k, query, closing).lines(query)

    def _find(
        self, app_id: str, role: str, k: int, query: LogQuery, closing: Closing
    ) -> ReplicaLog:
        local_app = self.scheduler._own_app(app_id)
        if local_app is None:
            stored = self.scheduler._stored(app_id)
            if stored is None:
                raise UnknownLocalAppError(app_id)
            return stored.log(role, k, query.streams, closing)
        if local_app.supervision is None:
            path = conventional_log_path(local_app, role, k, query.streams)
            return ReplicaLog(path, lambda: self._has_ended(app_id))
        return local_app.supervision.log(role, k, query.streams)

    def _has_ended(self, app_id: str) -> bool:
        found = self.scheduler.describe(app_id)
        return found is None or is_terminal(found.state)
