"""Saves the logs of apps in all configured log sinks, and finds and reads the copies."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torchx_kit.logs.lines import compile_regex
from torchx_log_sinks.layout import (
    AppRecord,
    app_folder,
    read_record,
    replica_folder,
    segments,
    split_lines,
)
from torchx_log_sinks.saver import LogSaver
from torchx_log_sinks.sinks import ConfiguredSink, open_sinks
from torchx_specs.errors import RequestError, one_line
from torchx_specs.model.app import AppDef, Role
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.log_items import Block, Replica
from torchx_specs.schedulers.logs import LogQuery, keep_last

logger = logging.getLogger(__name__)

#: How long to wait for the copies of an app that has ended, in seconds, if no line is added.
SILENCE_SECONDS = 30.0
# How long an interrupted command waits for its copies to stop, in seconds.
_INTERRUPTED_SECONDS = 2.0


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


class Copies:
    """Saves the logs of apps in log sinks, and finds the copies.

    The ``runner`` of the methods is a ``torchx_runner.Runner``.

    Args:
        urls: The URLs of the sinks, by NAME of their sections ``[log_sink:NAME]``.

    Attributes:
        sinks: The usable sinks.
    """

    def __init__(self, urls: Mapping[str, str]) -> None:
        self.sinks = open_sinks(urls)
        self._savers: list[LogSaver] = []

    def find(self, app_handle: str) -> LogCopy | None:
        """Return the copy of an app's logs, a complete one if there is any; None without a copy.

        If a sink fails, log a warning, and continue with the next sink.
        """
        found: LogCopy | None = None
        for sink in self.sinks:
            try:
                record = read_record(sink.sink, app_folder(app_handle))
            except Exception as e:  # another sink may have a copy
                logger.warning("%s: %s", sink, one_line(e))
                continue
            if record is not None and (found is None or record.complete):
                found = LogCopy(sink, record)
                if record.complete:
                    break
        return found

    def start(
        self,
        runner: Any,
        app_handle: str,
        replicas: Sequence[Replica],
        follow: bool = True,
        warns: bool = True,
    ) -> None:
        """Begin to save the logs of an app in all sinks; :meth:`finish` waits for the end.

        Args:
            runner: The runner.
            app_handle: The app, which has started.
            replicas: Role and index of each replica.
            follow: Whether to continue until the app has ended.
            warns: Whether to log a warning if a copy fails.
        """
        for sink in self.sinks:
            saver = LogSaver(runner, app_handle, replicas, sink, follow, warns)
            self._savers.append(saver)
            saver.start()

    def finish(self) -> None:
        """Wait for the copies of the ended apps; give up if no line is added for 30 seconds."""
        seen, seen_at = -1, time.monotonic()
        while any(saver.is_alive() for saver in self._savers):
            time.sleep(0.05)
            added = sum(saver.added for saver in self._savers)
            if added != seen:
                seen, seen_at = added, time.monotonic()
            elif time.monotonic() - seen_at > SILENCE_SECONDS:
                logger.warning(
                    "the copy of the logs is incomplete: no line was added for %g s;"
                    " 'torchx log --save' continues it",
                    SILENCE_SECONDS,
                )
                break
        for saver in self._savers:
            saver.stop()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Wait for the copies at the end of the context, when the apps should have ended.

        After an exception, such as an interrupt, the rest is left to the next process.
        """
        try:
            yield
        except BaseException:
            deadline = time.monotonic() + _INTERRUPTED_SECONDS
            for saver in self._savers:
                saver.join(max(0.0, deadline - time.monotonic()))
                saver.stop()
            raise
        self.finish()

    def save(self, runner: Any, app_handle: str, replicas: Sequence[Replica], follow: bool) -> None:
        """Save the logs of an app in all sinks, and log the result.

        Args:
            runner: The runner.
            app_handle: The app, which has started.
            replicas: Role and index of each replica.
            follow: Whether to continue until the app has ended.

        Raises:
            SinkError: A sink failed.
            BackendError: A log cannot be read.
        """
        self.start(runner, app_handle, replicas, follow, warns=False)
        for saver in self._savers:
            while saver.is_alive():
                saver.join(0.5)  # a wait without a limit would delay Ctrl-C
            if saver.error is None:
                logger.info(
                    "%s: %d line%s added; the copy %s",
                    saver.sink,
                    saver.added,
                    "" if saver.added == 1 else "s",
                    "is complete" if saver.is_complete else "has what the app has written so far",
                )
        for saver in self._savers:
            if saver.error is not None:
                raise saver.error
