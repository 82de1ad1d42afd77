"""Finds and reads the copies of logs in log sinks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx_cli.logs.replicas import selected_replicas
from torchx_cli.logs.saved.layout import (
    AppRecord,
    app_folder,
    read_record,
    replica_folder,
    segments,
    split_lines,
)
from torchx_cli.logs.saved.sinks import configured_sinks
from torchx_kit.logs.lines import compile_regex
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.app import AppDef, Role
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.last_lines import keep_last
from torchx_specs.schedulers.log_items import Block, Replica
from torchx_specs.schedulers.logs import LogQuery

if TYPE_CHECKING:
    from torchx_cli.logs.identifier import LogSource
    from torchx_cli.logs.saved.sinks import ConfiguredSink

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogCopy:
    """The copy of an app's logs in one sink.

    Args:
        sink: The sink.
        record: The description of the app.
    """

    sink: ConfiguredSink
    record: AppRecord

    def replicas(self, source: LogSource, only_failed: bool) -> list[Replica]:
        """Return the replicas that a log identifier selects, as role and index.

        Raises:
            RequestError: The copy has no such role or replica, or ``only_failed`` is requested for
                an app whose end is not in the copy.
        """
        record = self.record
        roles = [Role(name, image="", num_replicas=count) for name, count in record.roles.items()]
        replicas = selected_replicas(AppDef(record.name, roles), source)
        if not only_failed:
            return replicas
        if not record.complete:
            raise RequestError("--failed: the copy was made before the app ended; omit the option")
        return [replica for replica in replicas if replica in record.failed]

    def log_blocks(
        self, app_handle: str, replicas: Iterable[Replica], query: LogQuery
    ) -> Iterator[Block]:
        """Return the lines of replicas, as ``Runner.log_blocks`` does, without following them.

        Raises:
            RequestError: ``since`` or ``until`` is given, but a copy contains no times; or the copy
                does not contain the requested stream.
        """
        if query.since is not None or query.until is not None:
            raise RequestError("a copy has no times of lines; omit --since and --until")
        selected = self._streams(query.streams)

        def read(replicas: Iterable[Replica], should_tail: bool) -> Iterator[Block]:
            return self._read(app_handle, replicas, selected, query.regex)

        if query.last is None:
            return read(replicas, False)
        return keep_last(read, replicas, query.last, False)

    def _read(
        self,
        app_handle: str,
        replicas: Iterable[Replica],
        selected: Sequence[str],
        regex: str | None,
    ) -> Iterator[Block]:
        matches = None if regex is None else compile_regex(regex).search
        names = list(self.sink.sink.list(app_folder(app_handle)))
        for role, index in replicas:
            folder = replica_folder(app_folder(app_handle), role, index)
            for stream in selected:
                for segment in segments(names, folder, stream):
                    data = self.sink.sink.read(segment.name)
                    lines = (line.decode("utf-8", "replace") for line in split_lines(data))
                    yield (role, index), lines if matches is None else filter(matches, lines)

    def _streams(self, streams: Stream | None) -> Sequence[str]:
        stored = self.record.streams
        if streams in (None, Stream.COMBINED):
            return stored
        if streams.value not in stored:
            raise RequestError(
                f"the copy in {self.sink} has both streams together; omit --{streams.value}"
            )
        return [streams.value]


def find_copy(app_handle: str) -> LogCopy | None:
    """Return the copy of an app's logs, a complete one if there is any; None without a copy.

    If a sink fails, log a warning, and continue with the next sink.
    """
    found: LogCopy | None = None
    for sink in configured_sinks():
        try:
            record = read_record(sink.sink, app_folder(app_handle))
        except Exception as e:  # another sink may have a copy
            logger.warning("%s: %s", sink, one_line(e))
            continue
        if record is not None and record.complete:
            return LogCopy(sink, record)
        if record is not None and found is None:
            found = LogCopy(sink, record)
    return found
