"""The combined log of a replica, and when its parts were written.

A replica's process writes straight to ``stdout.log`` and ``stderr.log``: no pipe stands between, so
nothing is lost whoever dies. ``combined.log`` has the whole lines of both, in the order in which
they were seen.

``.times`` beside the logs says when: a record for each time something new was seen, some twenty a
second at most (later two a second). There is none if all was written within a tenth of a second,
and the process ended then; in that case the time of the file says it.
"""

from __future__ import annotations

import bisect
import os
import struct
import time
from typing import TYPE_CHECKING

from torchx_kit.logs.streams import GrowingFile, LineMerger, write_all
from torchx_sched_local.store.layout import COMBINED_LOG, STDERR_LOG, STDOUT_LOG

if TYPE_CHECKING:
    _Record = tuple[float, int, int, int]

TIMES = ".times"

# when, and how far stdout.log, stderr.log and combined.log had come, in whole lines
_RECORD = struct.Struct("<dQQQ")
_STREAMS = (STDOUT_LOG, STDERR_LOG, COMBINED_LOG)
_FINE_SECONDS = 0.1
_COARSE_SECONDS = 1.0
_FINE_RECORDS = 6000


class ReplicaLogs:
    """Merges the logs of one replica.

    Args:
        stdout: path of its stdout.log
        stderr: path of its stderr.log
        combined: path of its combined.log
    """

    def __init__(self, stdout: str, stderr: str, combined: str) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self._combined = combined
        self._times = os.path.join(os.path.dirname(combined), TIMES)
        self._size = 0
        self._out = GrowingFile(stdout)
        self._err = GrowingFile(stderr)
        self._sources = [self._out] if stdout == stderr else [self._out, self._err]
        self._fd = -1
        self._records = 0
        self._recorded: float | None = None
        self._unrecorded: _Record | None = None

    def recover(self) -> None:
        """Goes on where another process, which died, had come to.

        What that one had merged after its last record is merged again.
        """
        records = _read_records(self._times)
        if records:
            _, out, err, self._size = records[-1]
            self._out = GrowingFile(self.stdout, out)
            self._err = GrowingFile(self.stderr, err)
            self._sources = [self._out] if self.stdout == self.stderr else [self._out, self._err]
            self._records = len(records)
            self._recorded = records[-1][0]
        try:
            os.truncate(self._combined, self._size)
        except FileNotFoundError:
            pass

    def has_new(self) -> bool:
        """Returns True if there is more to merge than was merged."""
        return any(source.has_changed() for source in self._sources)

    def merge(self) -> bool:
        """Merges the whole lines that are new; returns True if there were any.

        Raises:
            OSError: they cannot be written
        """
        return self.has_new() and self._run(final=False)

    def finish(self) -> bool:
        """Merges all that is left; returns True if there was anything.

        Raises:
            OSError: it cannot be written
        """
        found = self.has_new() and self._run(final=True)
        if self._records:
            self._record_rest()
        return found

    def record_times(self) -> bool:
        """Records the latest times, if nothing new was seen for a moment; returns False if so.

        Called some time after :meth:`merge`, until it returns False. Those who ask for the lines
        since some time would take what comes next for older otherwise.
        """
        if self._unrecorded is None:
            return False
        if time.time() - self._unrecorded[0] < _FINE_SECONDS:
            return True
        self._record_rest()
        return False

    def end_line(self) -> None:
        """Ends a line that was left unfinished, so that another attempt's begins a new one."""
        for source in self._sources:
            if source.has_rest():
                fd = os.open(source.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                try:
                    write_all(fd, b"\n")
                finally:
                    os.close(fd)

    def _run(self, final: bool) -> bool:
        merger = LineMerger(self._sources, self._write)
        now = time.time()
        before = self._size
        if self._unrecorded is not None and now - self._unrecorded[0] >= self._pause():
            self._record_rest()  # before there is more, so that nobody takes that for older
        try:
            if final:
                merger.finish()
            else:
                merger.merge()
        finally:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
        if self._size > before:
            self._note(now)
        return self._size > before

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._combined, flags, 0o666)
        try:
            write_all(self._fd, data)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _pause(self) -> float:
        return _FINE_SECONDS if self._records < _FINE_RECORDS else _COARSE_SECONDS

    def _note(self, now: float) -> None:
        seen = (now, self._out.copied, self._err.copied, self._size)
        if self._recorded is None:
            self._recorded = now  # if this remains all, the time of the file says it
        elif now - self._recorded >= self._pause():
            self._recorded = now
            self._unrecorded = None
            self._append(seen)
            return
        self._unrecorded = seen

    def _record_rest(self) -> None:
        record, self._unrecorded = self._unrecorded, None
        if record is not None:
            self._recorded = record[0]
            self._append(record)

    def _append(self, record: _Record) -> None:
        fd = os.open(self._times, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            write_all(fd, _RECORD.pack(*record))
        except OSError:
            return  # the disk is full: times are the least of it
        finally:
            os.close(fd)
        self._records += 1


class RecordedTimes:
    """When the parts of a replica's log were written; for ``since`` and ``until``.

    Args:
        folder: folder of the replica
        stream: name of the log's file
    """

    def __init__(self, folder: str, stream: str) -> None:
        self._log = os.path.join(folder, stream)
        self._times = os.path.join(folder, TIMES)
        self._column = 1 + _STREAMS.index(stream)

    def written_before(self, when: float) -> int | None:
        """Returns how many bytes were written before ``when``, see LogTimes in file_logs."""
        records = _read_records(self._times)
        i = bisect.bisect_left(records, (when, 0, 0, 0))
        if i < len(records):
            return int(records[i - 1][self._column]) if i else 0
        try:
            found = os.stat(self._log)
        except FileNotFoundError:
            return None
        if found.st_mtime < when or not found.st_size:
            return None
        # something was written after the last record
        return int(records[-1][self._column]) if records else 0


def _read_records(path: str) -> list[_Record]:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    whole = len(data) - len(data) % _RECORD.size
    return list(_RECORD.iter_unpack(data[:whole]))
