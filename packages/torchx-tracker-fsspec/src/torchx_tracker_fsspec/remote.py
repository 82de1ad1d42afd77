"""The store on any fsspec file system: object stores, memory, SFTP, HDFS ...

An object store has no directories; it writes complete files and cannot append to them. On file
systems with directories, files are written under a temporary name and then renamed, so that readers
see only complete files. Files are read concurrently if the file system supports this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_specs.trackers.api import TrackerBackendError, TrackerValueError
from torchx_tracker_fsspec.names import record_names

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

R = TypeVar("R")

#: Protocols of file systems that write complete files and have no real directories.
_OBJECT_STORES = frozenset(
    (
        *("s3", "s3a", "r2"),
        *("gs", "gcs"),
        *("abfs", "abfss", "adl", "az"),
        *("oci", "oss", "obs", "cos", "tos", "swift", "hf"),
        "memory",
    )
)
#: Protocols of file systems that are private to this process, so that a missing root directory is
#: created instead of being an error.
_TRANSIENT = frozenset(("memory",))
_WORKERS = 16
_CHUNK = 256


class RemoteStore:
    """A directory on an fsspec file system.

    Args:
        connect: Creates the file system object. It is called again in a forked process, which
            cannot share connections with the parent process.
        root: Path of the directory.
        make: Whether to create the directory if it is missing.

    Raises:
        TrackerValueError: The protocol or an option is unknown, a library is missing, or the
            directory is missing on a file system with directories.
        TrackerBackendError: The file system cannot be reached.
    """

    #: Whether the store can append to a file without reading it.
    appends = False

    def __init__(
        self, connect: Callable[[], AbstractFileSystem], root: str, *, make: bool = False
    ) -> None:
        self._connect = connect
        self._process = os.getpid()
        try:
            self._fs = self._call("connect to", root, connect)
        except TrackerBackendError as e:
            if isinstance(e.__cause__, (ImportError, ValueError, TypeError)):
                # These errors mean an unknown protocol, a missing library or an unknown option.
                raise TrackerValueError(f"the fsspec tracker: {e.__cause__}") from e
            raise
        self.root = str(self._fs._strip_protocol(root)).rstrip("/")
        protocols = self._fs.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._is_object_store = bool(names & _OBJECT_STORES)
        self._created: set[str] = set()
        self._is_transient = bool(names & _TRANSIENT)
        if make or self._is_transient:
            self._call("create", self.root, lambda: self.fs.makedirs(self.root, exist_ok=True))
        if not self._is_object_store and not self._exists(self.root):
            raise TrackerValueError(
                f"the tracker's root_path '{root}' does not exist; create it or set auto_mkdir=true"
            )

    @property
    def fs(self) -> AbstractFileSystem:
        """The file system of this process."""
        if os.getpid() != self._process:
            self._fs = self._connect()
            self._process = os.getpid()
        return self._fs

    def put(self, run: str, category: str, name: str, data: bytes) -> None:
        """Write a new file ``RUN/CATEGORY/NAME``; readers see it only when it is complete."""
        self._write(f"{self.root}/{run}/{category}", name, data)

    def put_once(self, run: str, name: str, data: bytes) -> None:
        """Write ``RUN/NAME`` unless it exists."""
        if not self._exists(f"{self.root}/{run}/{name}"):
            self._write(f"{self.root}/{run}", name, data)

    def append(self, run: str, name: str, data: bytes) -> None:
        """Do nothing: this store cannot append."""

    def add_line(self, run: str, category: str, name: str, line: str) -> None:
        """Append a line to ``RUN/CATEGORY/NAME`` unless the file contains it.

        If two processes append at once, one line may be lost. The tracker therefore also writes
        each link to a file in ``links``.
        """
        path = f"{self.root}/{run}/{category}/{name}"
        try:
            content = self._call("read", path, lambda: self.fs.cat_file(path)).decode("utf-8")
        except FileNotFoundError:
            content = ""
        if content and not content.endswith("\n"):
            content += "\n"
        if line not in content.split("\n")[:-1]:
            self._write(f"{self.root}/{run}/{category}", name, f"{content}{line}\n".encode())

    def names(self, run: str, category: str) -> list[str]:
        """Return the names of the files in ``RUN/CATEGORY``, unordered."""
        return [
            _base(entry["name"])
            for entry in self._list(f"{self.root}/{run}/{category}")
            if entry["type"] != "directory"
        ]

    def names_of_many(self, runs: Sequence[str], category: str) -> list[list[str]]:
        """Return the result of :meth:`names` for each run."""
        return self._map(lambda run: self.names(run, category), runs)

    def read(
        self, run: str, category: str, names: Sequence[str]
    ) -> list[tuple[str, bytes | Exception]]:
        """Return the name of each file ``RUN/CATEGORY/NAME`` with its content or a read error.

        A missing file is left out.
        """
        paths = [f"{self.root}/{run}/{category}/{name}" for name in names]
        if not paths:
            return []
        directory = f"{self.root}/{run}/{category}"
        found = self._call("read", directory, lambda: self.fs.cat(paths, on_error="return"))
        if not isinstance(found, dict):  # for one path, some file systems return only its content
            found = {paths[0]: found}
        by_name = {_base(path): data for path, data in found.items()}
        return [
            (name, by_name[name])
            for name in names
            if name in by_name and not isinstance(by_name[name], FileNotFoundError)
        ]

    def read_file(self, run: str, name: str) -> bytes | None:
        """Return the content of the file ``RUN/NAME``, or None if it cannot be read."""
        try:
            return bytes(self.fs.cat_file(f"{self.root}/{run}/{name}"))
        except Exception:
            return None

    def has_run(self, run: str) -> bool:
        """Return whether the run has any record."""
        return self._exists(f"{self.root}/{run}")

    def runs(self) -> Iterator[list[bytes]]:
        """Yield the names of the directories in the root, in chunks.

        Raises:
            TrackerBackendError: The bucket does not exist, or the root cannot be listed.
        """
        entries = self._list(self.root)
        bucket = self.root.lstrip("/").partition("/")[0]
        if (
            not entries
            and self._is_object_store
            and not self._is_transient
            and not self._exists(bucket)
        ):
            raise TrackerBackendError(f"the fsspec tracker: bucket '{bucket}' does not exist")
        folders = [
            _base(entry["name"]).encode("utf-8", "surrogateescape")
            for entry in entries
            if entry["type"] == "directory"
        ]
        for begin in range(0, len(folders), _CHUNK):
            yield folders[begin : begin + _CHUNK]

    def runs_having(self, category: str, name: str) -> Iterator[list[bytes]]:
        """Yield the names of the runs that contain a file ``CATEGORY/NAME``, in chunks."""

        def has(run: bytes) -> bool:
            directory = run.decode("utf-8", "surrogateescape")
            return self._exists(f"{self.root}/{directory}/{category}/{name}")

        for runs in self.runs():
            yield [run for run, exists in zip(runs, self._map(has, runs), strict=True) if exists]

    def path(self, run: str, category: str, name: str) -> str:
        """Return the URL of a file, for error messages."""
        return str(self.fs.unstrip_protocol(f"{self.root}/{run}/{category}/{name}"))

    def _write(self, directory: str, name: str, data: bytes) -> None:
        path = f"{directory}/{name}"
        if self._is_object_store:
            self._call("write", path, lambda: self.fs.pipe_file(path, data))
            return
        if directory not in self._created:
            self._call("create", directory, lambda: self.fs.makedirs(directory, exist_ok=True))
            self._created.add(directory)
        temporary = f"{directory.rpartition('/')[0]}/.{record_names.new()}.tmp"
        self._call("write", path, lambda: self.fs.pipe_file(temporary, data))
        self._call("write", path, lambda: self.fs.mv(temporary, path))

    def _list(self, directory: str) -> list[dict[str, Any]]:
        def request() -> list[dict[str, Any]]:
            self.fs.invalidate_cache(directory)
            return list(self.fs.ls(directory, detail=True))

        try:
            return self._call("list", directory, request)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _exists(self, path: str) -> bool:
        def request() -> bool:
            self.fs.invalidate_cache(path)
            return bool(self.fs.exists(path))

        return self._call("check", path, request)

    def _map(self, call: Callable[[Any], R], items: Sequence[Any]) -> list[R]:
        """Call a function for each item, concurrently if the file system is asynchronous."""
        if not getattr(self.fs, "async_impl", False) or len(items) < 2:
            return [call(item) for item in items]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_WORKERS, len(items))) as pool:
            return list(pool.map(call, items))

    def _call(self, verb: str, path: str, call: Callable[[], R]) -> R:
        """Return the result of a call; convert its errors to TrackerBackendError.

        When reading, a missing file stays a FileNotFoundError, which the caller handles.
        """
        try:
            return call()
        except (FileNotFoundError, NotADirectoryError):
            if verb in ("write", "create"):
                raise TrackerBackendError(
                    f"the fsspec tracker cannot {verb} '{path}': the bucket or directory does not"
                    " exist"
                ) from None
            raise
        except Exception as e:
            raise TrackerBackendError(
                f"the fsspec tracker cannot {verb} '{path}': {type(e).__name__}: {e}"
            ) from e


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
