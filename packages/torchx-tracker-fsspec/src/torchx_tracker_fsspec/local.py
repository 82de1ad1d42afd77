"""The store on a local disk, which uses system calls instead of fsspec.

Files are written under a temporary name and renamed, so that readers see only complete files. A
killed process leaves at most a file ``.NAME.tmp`` in the run's directory, which readers ignore.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

from torchx_specs.trackers.api import TrackerBackendError, TrackerValueError
from torchx_tracker_fsspec.names import record_names

#: Maximum number of entries of the root directory that are read at once.
_CHUNK = 512


class LocalStore:
    """A directory on a local disk.

    Args:
        root: Path of the directory.
        make: Whether to create the directory if it is missing.

    Raises:
        TrackerValueError: The path is missing or not a directory.
        TrackerBackendError: The directory cannot be created.
    """

    #: Whether the store can append to a file without reading it.
    appends = True

    def __init__(self, root: str, *, make: bool = False) -> None:
        self.root = root.rstrip("/") or "/"
        if make:
            try:
                os.makedirs(self.root, exist_ok=True)
            except OSError as e:
                raise self._backend_error("create", self.root, e) from e
        if not os.path.isdir(self.root):
            problem = "is not a directory" if os.path.exists(self.root) else "does not exist"
            raise TrackerValueError(
                f"the tracker's root_path '{root}' {problem}; create it or set auto_mkdir=true"
            )

    def put(self, run: str, category: str, name: str, data: bytes) -> None:
        """Write a new file ``RUN/CATEGORY/NAME``; readers see it only when it is complete."""
        directory = f"{self.root}/{run}"
        temporary = f"{directory}/.{name}.tmp"
        target = f"{directory}/{category}/{name}"
        try:
            self._write_temporary(run, temporary, data)
            try:
                os.rename(temporary, target)
            except FileNotFoundError:
                self._make_directory(f"{directory}/{category}")
                os.rename(temporary, target)
        except OSError as e:
            raise self._backend_error("write", target, e) from e

    def put_once(self, run: str, name: str, data: bytes) -> None:
        """Write ``RUN/NAME`` unless it exists."""
        path = f"{self.root}/{run}/{name}"
        if not os.path.exists(path):
            temporary = f"{self.root}/{run}/.{record_names.new()}.tmp"
            try:
                self._write_temporary(run, temporary, data)
                os.rename(temporary, path)
            except OSError as e:
                raise self._backend_error("write", path, e) from e

    def append(self, run: str, name: str, data: bytes) -> None:
        """Append to ``RUN/NAME`` in one system call.

        Errors are ignored, because readers can do without this file.
        """
        try:
            with open(f"{self.root}/{run}/{name}", "ab", buffering=0) as file:
                file.write(data)
        except OSError:
            pass

    def add_line(self, run: str, category: str, name: str, line: str) -> None:
        """Append a line to ``RUN/CATEGORY/NAME`` unless the file contains it.

        Several processes may call this at the same time; they may write a line twice, which is
        harmless.
        """
        path = f"{self.root}/{run}/{category}/{name}"
        data = line.encode() + b"\n"
        try:
            if os.path.exists(path) or not self._link_new(run, category, name, data):
                with open(path, "ab+", buffering=0) as file:
                    file.seek(0)
                    content = file.read()
                    # The last line is incomplete if the disk was full.
                    start = b"" if not content or content.endswith(b"\n") else b"\n"
                    if data not in content.splitlines(keepends=True):
                        file.write(start + data)
        except OSError as e:
            raise self._backend_error("write", path, e) from e

    def names(self, run: str, category: str) -> list[str]:
        """Return the names of the files in ``RUN/CATEGORY``, unordered."""
        path = f"{self.root}/{run}/{category}"
        try:
            return os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as e:
            raise self._backend_error("read", path, e) from e

    def names_of_many(self, runs: Sequence[str], category: str) -> list[list[str]]:
        """Return the result of :meth:`names` for each run."""
        return [self.names(run, category) for run in runs]

    def read(
        self, run: str, category: str, names: Sequence[str]
    ) -> list[tuple[str, bytes | Exception]]:
        """Return the name of each file ``RUN/CATEGORY/NAME`` with its content or a read error.

        A missing file is left out.
        """
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
        """Return the content of the file ``RUN/NAME``, or None if it cannot be read."""
        try:
            return _read(f"{self.root}/{run}/{name}")
        except OSError:
            return None

    def has_run(self, run: str) -> bool:
        """Return whether the run has any record."""
        return os.path.isdir(f"{self.root}/{run}")

    def runs(self) -> Iterator[list[bytes]]:
        """Yield the names of the directories in the root, in chunks."""
        for entries in self._entries():
            yield [entry.name for entry in entries if entry.is_dir()]

    def runs_having(self, category: str, name: str) -> Iterator[list[bytes]]:
        """Yield the names of the runs that contain a file ``CATEGORY/NAME``, in chunks."""
        suffix = f"/{category}/{name}".encode()
        for entries in self._entries():
            yield [entry.name for entry in entries if os.path.exists(entry.path + suffix)]

    def _entries(self) -> Iterator[list[os.DirEntry[bytes]]]:
        try:
            with os.scandir(os.fsencode(self.root)) as entries:
                while chunk := list(islice(entries, _CHUNK)):
                    yield chunk
        except OSError as e:
            raise self._backend_error("read", self.root, e) from e

    def path(self, run: str, category: str, name: str) -> str:
        """Return the path of a file, for error messages."""
        return f"{self.root}/{run}/{category}/{name}"

    def _write_temporary(self, run: str, temporary: str, data: bytes) -> None:
        self._make_directory(f"{self.root}/{run}")
        try:
            with open(temporary, "xb") as file:
                file.write(data)
        except OSError:
            if os.path.exists(temporary):
                os.unlink(temporary)
            raise

    def _link_new(self, run: str, category: str, name: str, data: bytes) -> bool:
        """Create ``RUN/CATEGORY/NAME`` with its content; return False if this is not possible.

        Another writer may have created the file, or the file system has no hard links.
        """
        directory = f"{self.root}/{run}"
        temporary = f"{directory}/.{record_names.new()}.tmp"
        self._write_temporary(run, temporary, data)
        try:
            self._make_directory(f"{directory}/{category}")
            os.link(temporary, f"{directory}/{category}/{name}")
        except OSError:
            return False
        finally:
            os.unlink(temporary)
        return True

    @staticmethod
    def _make_directory(path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            pass

    def _backend_error(self, verb: str, path: str, error: OSError) -> TrackerBackendError:
        reason = error.strerror or str(error)
        if not os.path.isdir(self.root):
            reason = f"its root '{self.root}' does not exist"
        return TrackerBackendError(f"the fsspec tracker cannot {verb} '{path}': {reason}")


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()
