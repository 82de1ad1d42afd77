"""The store on a local disk: plain system calls, no fsspec.

What appears under its name is whole: it is written beside, and renamed. A process that is killed
leaves at most a file ``.NAME.tmp`` in the run's folder, which nobody reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from torchx_specs.trackers.api import TrackerBackendError, TrackerValueError
from torchx_tracker_fsspec.names import record_names

#: How many folders of runs are looked at together.
_CHUNK = 512
_BLOCK = 1 << 16


class LocalStore:
    """A folder on a local disk.

    Args:
        root: the folder
        make: whether to make it if it is not there

    Raises:
        TrackerValueError: it is not there, or is no folder
    """

    #: Whether a line can be added to a file without reading it.
    appends = True

    def __init__(self, root: str, *, make: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        if make:
            try:
                os.makedirs(self.root, exist_ok=True)
            except OSError as e:
                raise self._failed("make", self.root, e) from e
        if not os.path.isdir(self.root):
            what = "is no folder" if os.path.exists(self.root) else "does not exist"
            raise TrackerValueError(
                f"the tracker's root_path '{root}' {what}: make it, or configure auto_mkdir=true"
            )

    def put(self, run: str, category: str, name: str, data: bytes) -> None:
        """Writes a new file ``RUN/CATEGORY/NAME``; it appears whole."""
        folder = f"{self.root}/{run}"
        temporary = f"{folder}/.{name}.tmp"
        target = f"{folder}/{category}/{name}"
        try:
            self._write_beside(run, temporary, data)
            try:
                os.rename(temporary, target)
            except FileNotFoundError:
                self._make_folder(f"{folder}/{category}")
                os.rename(temporary, target)
        except OSError as e:
            raise self._failed("write", target, e) from e

    def put_once(self, run: str, name: str, data: bytes) -> None:
        """Writes ``RUN/NAME`` unless it is there."""
        path = f"{self.root}/{run}/{name}"
        if not os.path.exists(path):
            temporary = f"{self.root}/{run}/.{record_names.new()}.tmp"
            try:
                self._write_beside(run, temporary, data)
                os.rename(temporary, path)
            except OSError as e:
                raise self._failed("write", path, e) from e

    def append(self, run: str, name: str, data: bytes) -> None:
        """Adds to ``RUN/NAME`` in one call; fails silently, for what can do without."""
        try:
            descriptor = os.open(
                f"{self.root}/{run}/{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666
            )
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError:
            pass

    def add_line(self, run: str, category: str, name: str, line: str) -> None:
        """Adds a line to ``RUN/CATEGORY/NAME`` unless it is there, whoever else does the same."""
        path = f"{self.root}/{run}/{category}/{name}"
        data = line.encode()
        try:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
            except FileNotFoundError:
                if self._link_new(run, category, name, data + b"\n"):
                    return
                descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
            try:
                _add_line(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as e:
            raise self._failed("write", path, e) from e

    def names(self, run: str, category: str) -> list[str]:
        """Returns the files in ``RUN/CATEGORY``, in any order."""
        path = f"{self.root}/{run}/{category}"
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as e:
            raise self._failed("read", path, e) from e

    def names_of_many(self, runs: Sequence[str], category: str) -> list[list[str]]:
        """Returns :meth:`names` for each of these runs."""
        return [self.names(run, category) for run in runs]

    def read(
        self, run: str, category: str, names: Sequence[str]
    ) -> list[tuple[str, bytes | Exception]]:
        """Returns the files ``RUN/CATEGORY/NAME``; one that has gone is left out."""
        found: list[tuple[str, bytes | Exception]] = []
        for name in names:
            try:
                found.append((name, _read(f"{self.root}/{run}/{category}/{name}")))
            except FileNotFoundError:
                continue
            except OSError as e:
                found.append((name, e))
        return found

    def read_file(self, run: str, name: str) -> bytes | None:
        """Returns the file ``RUN/NAME``, None if there is none or it cannot be read."""
        try:
            return _read(f"{self.root}/{run}/{name}")
        except OSError:
            return None

    def has_run(self, run: str) -> bool:
        """Whether anything was recorded of a run."""
        return os.path.isdir(f"{self.root}/{run}")

    def runs(self) -> Iterator[list[bytes]]:
        """Yields the names of the folders in the root, some at a time."""
        for entries in self._entries():
            yield [entry.name for entry in entries if entry.is_dir()]

    def runs_having(self, category: str, name: str) -> Iterator[list[bytes]]:
        """Yields the names of those that have a file ``CATEGORY/NAME``, some at a time."""
        below = f"/{category}/{name}".encode()
        # One system call a run is all there is to this. Threads only get in each other's way, and
        # a path from the root down is a third quicker to follow than a whole one.
        access, exists = os.access, os.F_OK
        try:
            root = os.open(self.root, os.O_RDONLY)
        except OSError as e:
            raise self._failed("read", self.root, e) from e
        try:
            for entries in self._entries():
                names = [entry.name for entry in entries]  # what has such a file is a folder
                yield [run for run in names if access(run + below, exists, dir_fd=root)]
        finally:
            os.close(root)

    def _entries(self) -> Iterator[list[os.DirEntry[bytes]]]:
        try:
            with os.scandir(os.fsencode(self.root)) as entries:
                while chunk := list(islice(entries, _CHUNK)):
                    yield chunk
        except OSError as e:
            raise self._failed("read", self.root, e) from e

    def path(self, run: str, category: str, name: str) -> str:
        """Returns where a file is, for messages."""
        return f"{self.root}/{run}/{category}/{name}"

    def _write_beside(self, run: str, temporary: str, data: bytes) -> None:
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError:
            self._make_folder(f"{self.root}/{run}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
            finally:
                os.close(descriptor)
        except OSError:
            os.unlink(temporary)
            raise

    def _link_new(self, run: str, category: str, name: str, data: bytes) -> bool:
        """Makes ``RUN/CATEGORY/NAME`` with this content; False if somebody else just did."""
        folder = f"{self.root}/{run}"
        temporary = f"{folder}/.{record_names.new()}.tmp"
        target = f"{folder}/{category}/{name}"
        self._write_beside(run, temporary, data)
        try:
            self._make_folder(f"{folder}/{category}")
            try:
                os.link(temporary, target)
            except FileExistsError:
                return False
            except OSError:  # a file system without links
                if os.path.exists(target):
                    return False
                os.rename(temporary, target)
                return True
        finally:
            try:
                os.unlink(temporary)
            except FileNotFoundError:
                pass
        return True

    @staticmethod
    def _make_folder(path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            pass

    def _failed(self, verb: str, path: str, error: OSError) -> TrackerBackendError:
        reason = error.strerror or str(error)
        if not os.path.isdir(self.root):
            reason = f"its root '{self.root}' is gone"
        return TrackerBackendError(f"the fsspec tracker cannot {verb} '{path}': {reason}")


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, _BLOCK)
        if len(data) < _BLOCK:
            return data
        parts = [data]
        while parts[-1]:
            parts.append(os.read(descriptor, _BLOCK))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _add_line(descriptor: int, line: bytes) -> None:
    """Adds a line to an open file unless it is there; closing the file ends its lock."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        pass  # no locks here: at worst a line stands there twice
    have = b""
    while part := os.read(descriptor, _BLOCK):
        have += part
    ended = not have or have.endswith(b"\n")
    lines = have.split(b"\n")
    if ended:
        lines.pop()
    if line in lines:
        return
    os.write(descriptor, (b"" if ended else b"\n") + line + b"\n")
