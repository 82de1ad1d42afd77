"""The store on any file system that fsspec has: object stores, memory, SFTP, HDFS ...

An object store takes a file whole, and has neither folders nor appending. Where a file system does
have folders, files are written beside and moved. What is read in numbers is read at the same time
where the file system can.
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

#: File systems that take a file whole, and where a folder is there once a file in it is.
_WHOLE = frozenset(
    (
        *("s3", "s3a", "r2"),
        *("gs", "gcs"),
        *("abfs", "abfss", "adl", "az"),
        *("oci", "oss", "obs", "cos", "tos", "swift", "hf"),
        "memory",
    )
)
#: Of these, the ones whose root may be made without harm: it lives and dies with the process.
_TRANSIENT = frozenset(("memory",))
_WORKERS = 16
_CHUNK = 256


class RemoteStore:
    """A folder on a file system of fsspec.

    Args:
        connect: makes the file system; called again in a forked process, which cannot share one
        root: the folder
        make: whether to make it if it is not there

    Raises:
        TrackerValueError: it is not there, on a file system that has folders
        TrackerBackendError: the file system cannot be reached
    """

    #: Whether a line can be added to a file without reading it.
    appends = False

    def __init__(
        self, connect: Callable[[], AbstractFileSystem], root: str, *, make: bool = False
    ) -> None:
        self._connect = connect
        self._process = os.getpid()
        try:
            self._fs = self._trying("connect to", root, connect)
        except TrackerBackendError as e:
            if isinstance(e.__cause__, (ImportError, ValueError, TypeError)):
                # no such protocol, its library is not installed, or an option is not its own
                raise TrackerValueError(f"the fsspec tracker: {e.__cause__}") from e
            raise
        self.root = str(self._fs._strip_protocol(root)).rstrip("/")
        protocols = self._fs.protocol
        names = {protocols} if isinstance(protocols, str) else set(protocols)
        self._whole = bool(names & _WHOLE)
        self._folders: set[str] = set()
        self._transient = bool(names & _TRANSIENT)
        if make or self._transient:
            self._trying("make", self.root, lambda: self.fs.makedirs(self.root, exist_ok=True))
        if not self._whole and not self._exists(self.root):
            raise TrackerValueError(
                f"the tracker's root_path '{root}' does not exist: make it, or configure"
                " auto_mkdir=true"
            )

    @property
    def fs(self) -> AbstractFileSystem:
        """The file system, one for each process."""
        if os.getpid() != self._process:
            self._fs = self._connect()
            self._process = os.getpid()
        return self._fs

    def put(self, run: str, category: str, name: str, data: bytes) -> None:
        """Writes a new file ``RUN/CATEGORY/NAME``; it appears whole."""
        self._write(f"{self.root}/{run}/{category}", name, data)

    def put_once(self, run: str, name: str, data: bytes) -> None:
        """Writes ``RUN/NAME`` unless it is there."""
        if not self._exists(f"{self.root}/{run}/{name}"):
            self._write(f"{self.root}/{run}", name, data)

    def append(self, run: str, name: str, data: bytes) -> None:
        """Does nothing: this store does not append."""

    def add_line(self, run: str, category: str, name: str, line: str) -> None:
        """Adds a line to ``RUN/CATEGORY/NAME`` unless it is there.

        Of two processes that add different lines at once one may win; see the links that are files
        of their own.
        """
        path = f"{self.root}/{run}/{category}/{name}"
        try:
            have = self._trying("read", path, lambda: self.fs.cat_file(path)).decode("utf-8")
        except FileNotFoundError:
            have = ""
        if have and not have.endswith("\n"):
            have += "\n"
        if line not in have.split("\n")[:-1]:
            self._write(f"{self.root}/{run}/{category}", name, f"{have}{line}\n".encode())

    def names(self, run: str, category: str) -> list[str]:
        """Returns the files in ``RUN/CATEGORY``, in any order."""
        return [
            _base(entry["name"])
            for entry in self._list(f"{self.root}/{run}/{category}")
            if entry["type"] != "directory"
        ]

    def names_of_many(self, runs: Sequence[str], category: str) -> list[list[str]]:
        """Returns :meth:`names` for each of these runs."""
        return self._map(lambda run: self.names(run, category), runs)

    def read(
        self, run: str, category: str, names: Sequence[str]
    ) -> list[tuple[str, bytes | Exception]]:
        """Returns the files ``RUN/CATEGORY/NAME``; one that has gone is left out."""
        paths = [f"{self.root}/{run}/{category}/{name}" for name in names]
        if not paths:
            return []
        folder = f"{self.root}/{run}/{category}"
        found = self._trying("read", folder, lambda: self.fs.cat(paths, on_error="return"))
        if not isinstance(found, dict):  # some file systems make one file of a list of one
            found = {paths[0]: found}
        by_name = {_base(path): data for path, data in found.items()}
        return [
            (name, by_name[name])
            for name in names
            if name in by_name and not isinstance(by_name[name], FileNotFoundError)
        ]

    def read_file(self, run: str, name: str) -> bytes | None:
        """Returns the file ``RUN/NAME``, None if there is none or it cannot be read."""
        try:
            return bytes(self.fs.cat_file(f"{self.root}/{run}/{name}"))
        except Exception:
            return None

    def has_run(self, run: str) -> bool:
        """Whether anything was recorded of a run."""
        return self._exists(f"{self.root}/{run}")

    def runs(self) -> Iterator[list[bytes]]:
        """Yields the names of the folders in the root, some at a time."""
        entries = self._list(self.root)
        bucket = self.root.lstrip("/").partition("/")[0]
        if not entries and self._whole and not self._transient and not self._exists(bucket):
            raise TrackerBackendError(f"the fsspec tracker: there is no bucket '{bucket}'")
        folders = [
            _base(entry["name"]).encode("utf-8", "surrogateescape")
            for entry in entries
            if entry["type"] == "directory"
        ]
        for begin in range(0, len(folders), _CHUNK):
            yield folders[begin : begin + _CHUNK]

    def runs_having(self, category: str, name: str) -> Iterator[list[bytes]]:
        """Yields the names of those that have a file ``CATEGORY/NAME``, some at a time."""

        def has(run: bytes) -> bool:
            folder = run.decode("utf-8", "surrogateescape")
            return self._exists(f"{self.root}/{folder}/{category}/{name}")

        for runs in self.runs():
            yield [run for run, there in zip(runs, self._map(has, runs), strict=True) if there]

    def path(self, run: str, category: str, name: str) -> str:
        """Returns where a file is, for messages."""
        return str(self.fs.unstrip_protocol(f"{self.root}/{run}/{category}/{name}"))

    def _write(self, folder: str, name: str, data: bytes) -> None:
        path = f"{folder}/{name}"
        if self._whole:
            self._trying("write", path, lambda: self.fs.pipe_file(path, data))
            return
        if folder not in self._folders:
            self._trying("make", folder, lambda: self.fs.makedirs(folder, exist_ok=True))
            self._folders.add(folder)
        beside = f"{folder.rpartition('/')[0]}/.{record_names.new()}.tmp"
        self._trying("write", path, lambda: self.fs.pipe_file(beside, data))
        self._trying("write", path, lambda: self.fs.mv(beside, path))

    def _list(self, folder: str) -> list[dict[str, Any]]:
        def ask() -> list[dict[str, Any]]:
            self.fs.invalidate_cache(folder)
            return list(self.fs.ls(folder, detail=True))

        try:
            return self._trying("list", folder, ask)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _exists(self, path: str) -> bool:
        def ask() -> bool:
            self.fs.invalidate_cache(path)
            return bool(self.fs.exists(path))

        return self._trying("look for", path, ask)

    def _map(self, call: Callable[[Any], R], items: Sequence[Any]) -> list[R]:
        """Calls for each item, several at a time where the file system is made for that."""
        if not getattr(self.fs, "async_impl", False) or len(items) < 2:
            return [call(item) for item in items]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_WORKERS, len(items))) as pool:
            return list(pool.map(call, items))

    def _trying(self, verb: str, path: str, call: Callable[[], R]) -> R:
        """Calls, and makes one kind of error of all that a file system may raise.

        That a file is not there is for the caller to judge.
        """
        try:
            return call()
        except (FileNotFoundError, NotADirectoryError):
            if verb in ("write", "make"):
                raise TrackerBackendError(
                    f"the fsspec tracker cannot {verb} '{path}': there is no such bucket or folder"
                ) from None
            raise
        except Exception as e:
            raise TrackerBackendError(
                f"the fsspec tracker cannot {verb} '{path}': {type(e).__name__}: {e}"
            ) from e


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
