"""Writes the combined log of a replica, and records when the parts of the log were written.

The process of a replica writes directly to ``stdout.log`` and ``stderr.log``, without a pipe. So no
output is lost, whichever process dies. ``combined.log`` gets the whole lines of both files, in the
order in which the supervisor saw them. Incomplete last lines are added when the replica has ended.

The file ``.times`` beside the logs records when lines were merged: at most ten records a second,
and one a second in the logs of long jobs. A merge records the one before it: readers use the
modification time of the log for the lines that were merged last.

The file ``.attempts`` has the same records: where each attempt after the first one begins.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torchx_kit.logs.regular_files import open_regular
from torchx_kit.logs.streams import GrowingFile, LineMerger, PartialWriteError, write_all
from torchx_sched_local.request import ReplicaParam
from torchx_sched_local.store.layout import COMBINED_LOG, STDERR_LOG, STDOUT_LOG
from torchx_sched_local.store.safe_folders import closing_fd

if TYPE_CHECKING:
    from torchx_sched_local.store.app_folder import AppFolder

    _Record = tuple[float, int, int, int]

TIMES = ".times"
ATTEMPTS = ".attempts"

# A time, how many bytes of stdout.log and of stderr.log were merged until then, and the size of
# combined.log in bytes at that time.
_RECORD = struct.Struct("<dQQQ")
_STREAMS = (STDOUT_LOG, STDERR_LOG, COMBINED_LOG)
# The shortest time between two records: _SHORT_SECONDS for the first _SHORT_RECORDS records, then
# _LONG_SECONDS.
_SHORT_SECONDS = 0.1
_LONG_SECONDS = 1.0
_SHORT_RECORDS = 6000
_LARGEST_TIMES = 1 << 28


class ReplicaLogs:
    """Merges the logs of one replica.

    Args:
        folder: The app's folder, which is held open.
        stdout: Path of ``stdout.log``.
        stderr: Path of ``stderr.log``.
        combined: Path of ``combined.log``.
    """

    def __init__(self, folder: AppFolder, stdout: str, stderr: str, combined: str) -> None:
        self._folder = folder
        self._stdout = stdout
        self._stderr = stderr
        self._combined = combined
        self._times = os.path.join(os.path.dirname(combined), TIMES)
        self._continue_at(0, 0, 0)
        self._records = 0
        self._recorded = 0.0
        # The last merge; None if it is recorded.
        self._last: _Record | None = None

    @classmethod
    def of(cls, folder: AppFolder, param: ReplicaParam) -> ReplicaLogs | None:
        """Return the logs of a replica; None unless it writes both streams to files."""
        if param.stdout and param.stderr and param.combined:
            return cls(folder, param.stdout, param.stderr, param.combined)
        return None

    def recover(self) -> None:
        """Continue the merge of another process that has died.

        ``combined.log`` is truncated to the size in the last record, or to 0 without a valid
        record. The next call of :meth:`merge` merges the later lines again.
        """
        records = _read_records(self._folder.open, self._times)
        sizes = [self._source(path).size() for path in (self._stdout, self._stderr, self._combined)]
        if records and all(n <= size for n, size in zip(records[-1][1:], sizes, strict=True)):
            self._recorded, *sizes = records[-1]
            self._continue_at(*sizes)
            self._records = len(records)
        with (
            contextlib.suppress(FileNotFoundError),
            closing_fd(self._folder.open(self._combined, os.O_WRONLY)) as fd,
        ):
            os.ftruncate(fd, self._size)

    def _continue_at(self, out: int, err: int, combined: int) -> None:
        """Merge what follows these positions; ``combined`` is the size of ``combined.log``."""
        self._out = self._source(self._stdout, out)
        self._err = self._source(self._stderr, err)
        self._sources = [self._out] if self._stdout == self._stderr else [self._out, self._err]
        self._size = combined

    def begin_attempt(self) -> None:
        """Complete an incomplete last line, and record where the next attempt begins."""
        for source in self._sources:
            if source.has_rest():
                flags = os.O_WRONLY | os.O_APPEND
                with closing_fd(self._folder.open(source.path, flags)) as fd:
                    write_all(fd, b"\n")
        with contextlib.suppress(OSError):  # the next merge reports the error
            self.merge()
        record = (time.time(), self._out.copied, self._err.copied, self._size)
        self._append_to(os.path.join(os.path.dirname(self._combined), ATTEMPTS), record)

    def merge(self, final: bool = False) -> None:
        """Merge the new whole lines.

        Args:
            final: Merge incomplete last lines, too.

        Raises:
            OSError: ``combined.log`` cannot be written.
        """
        if not any(source.has_changed() for source in self._sources):
            return
        merger = LineMerger(self._sources, self._write)
        now = time.time()
        before = self._size
        pause = _SHORT_SECONDS if self._records < _SHORT_RECORDS else _LONG_SECONDS
        if now - self._recorded >= pause:
            # The lines of this merge are newer than those of the last one.
            self._record_last(now)
        try:
            if final:
                merger.finish()
            else:
                merger.merge()
        except OSError:
            # Readers need the position up to which the streams were merged; see missing_lines().
            self._last = (now, self._out.copied, self._err.copied, self._size)
            self._record_last(now)
            raise
        if self._size > before:
            self._last = (now, self._out.copied, self._err.copied, self._size)

    def _write(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with closing_fd(self._folder.open(self._combined, flags, 0o644)) as fd:
            try:
                write_all(fd, data)
            except OSError as e:
                # Keep the whole lines, because followers may have read them.
                written = os.fstat(fd).st_size - self._size
                error = PartialWriteError(e.errno, e.strerror)
                error.written = data.rfind(b"\n", 0, max(0, written)) + 1
                self._size += error.written
                os.ftruncate(fd, self._size)
                raise error from e
        self._size += len(data)

    def _source(self, path: str, copied: int = 0) -> GrowingFile:
        name, folder = self._folder.locate(path)
        return GrowingFile(name, copied, folder)

    def _record_last(self, now: float) -> None:
        """Record the last merge, unless it is recorded already."""
        last, self._last = self._last, None
        if last is not None and self._append_to(self._times, last):
            self._records += 1
            self._recorded = now

    def _append_to(self, path: str, record: _Record) -> bool:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            with closing_fd(self._folder.open(path, flags, 0o644)) as fd:
                write_all(fd, _RECORD.pack(*record))
        except OSError:
            return False  # for example, the disk is full; logs can be read without their times
        return True


def missing_lines(folder: str) -> list[tuple[str, int]]:
    """Return the parts of the streams that the combined log of an ended replica lacks.

    Usually there is none. But if the disk was full, lines could not be merged.

    Args:
        folder: The replica's folder.

    Returns:
        The path of each stream with missing lines, and where they begin, in bytes. If that position
        was not recorded, lines that the combined log has are included.
    """
    paths = [os.path.join(folder, name) for name in _STREAMS]
    out, err, combined = (GrowingFile(path).size() for path in paths)
    if combined >= out + err:
        return []
    records = _read_records(open_regular, os.path.join(folder, TIMES))
    _, *merged = records[-1] if records else (0.0, 0, 0, 0)
    if merged[2] > combined:  # a replica has truncated its log
        merged = [0, 0, 0]
    parts = zip(paths, merged, (out, err), strict=False)
    return [(path, begin) for path, begin, size in parts if begin < size]


def attempt_begins(folder: str, stream: str) -> list[int]:
    """Return where each attempt of a replica after the first one begins in its log, in bytes.

    Args:
        folder: The replica's folder.
        stream: Name of the log file.
    """
    column = 1 + _STREAMS.index(stream)
    records = _read_records(open_regular, os.path.join(folder, ATTEMPTS))
    return [int(record[column]) for record in records]


class RecordedTimes:
    """The times when the parts of a replica's log were written, for ``since`` and ``until``.

    Args:
        folder: The replica's folder.
        stream: Name of the log file.
    """

    def __init__(self, folder: str, stream: str) -> None:
        self._log = os.path.join(folder, stream)
        self._times = os.path.join(folder, TIMES)
        self._column = 1 + _STREAMS.index(stream)

    def written_before(self, when: float) -> int | None:
        """Return how many bytes of the log were written before ``when`` (seconds since 1970).

        The result is None if the whole log is older than ``when``, or if it is empty or missing.
        """
        records = _read_records(open_regular, self._times)
        i = bisect.bisect_left(records, (when, 0, 0, 0))
        if i < len(records):
            return int(records[i - 1][self._column]) if i else 0
        try:
            stat = os.stat(self._log)
        except FileNotFoundError:
            return None
        if stat.st_mtime < when or not stat.st_size:
            return None
        # The lines after the last record are as new as the modification time of the log.
        return int(records[-1][self._column]) if records else 0


def _read_records(open_file: Callable[[str, int], int], path: str) -> list[_Record]:
    """Return the records of a file, up to the first damaged one; none if it cannot be read."""
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            data = file.read(_LARGEST_TIMES)
    except OSError:
        return []
    records: list[_Record] = []
    last: _Record = (0.0, 0, 0, 0)
    for record in _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size]):
        if not all(new >= old for new, old in zip(record[1:], last[1:], strict=True)):
            break  # damaged, because the sizes in a valid record never decrease
        records.append(record)
        last = record
    return records
