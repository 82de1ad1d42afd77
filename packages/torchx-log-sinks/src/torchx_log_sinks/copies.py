"""Finds and reads the copies of logs in log sinks."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from torchx_kit.logs.lines import compile_regex
from torchx_log_sinks.layout import (
    AppRecord,
    app_folder,
    read_record,
    replica_folder,
    segments,
    split_lines,
)
from torchx_log_sinks.sinks import ConfiguredSink
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.app import AppDef, Role
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.last_lines import keep_last
from torchx_specs.schedulers.log_items import Block, Replica
from torchx_specs.schedulers.logs import LogQuery

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

    def __str__(self) -> str:
        return str(self.sink)

    @property
    def app(self) -> AppDef:
        """The name and the roles of the app."""
        roles = [Role(n, image="", num_replicas=count) for n, count in self.record.roles.items()]
        return AppDef(self.record.name, roles)

    @property
    def failed(self) -> list[Replica]:
        """The replicas that failed; empty until the copy is complete."""
        return self.record.failed

    @property
    def is_complete(self) -> bool:
        """Whether the app has ended and the copy has all lines."""
        return self.record.complete

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


def find_copy(sinks: Iterable[ConfiguredSink], app_handle: str) -> LogCopy | None:
    """Return the copy of an app's logs, a complete one if there is any; None without a copy.

    If a sink fails, log a warning, and continue with the next sink.
    """
    found: LogCopy | None = None
    for sink in sinks:
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
