"""Checks that code opens no connection, starts no process and changes no file."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock


class Watch:
    """The connections, processes and changed files of the watched code."""

    def __init__(self) -> None:
        #: One text for each attempt to connect, to resolve a host name or to start a process.
        self.contacts: list[str] = []
        #: Files that were created, changed or removed.
        self.files: list[str] = []

    def check(self) -> None:
        """Fail if the code tried to connect or to start a process, or changed a file."""
        assert not self.contacts, f"contacted: {self.contacts}"
        assert not self.files, f"touched: {self.files}"


@contextmanager
def offline(*folders: str | Path) -> Iterator[Watch]:
    """Refuse connections and processes, and record changed files.

    ::

        with offline(tmp_path) as watch:
            runner.dryrun(app, "acme")
        watch.check()

    Args:
        folders: Folders to watch for changed files. ``$TORCHX_HOME``, if it is set, and the folder
            for temporary files are always watched; the latter is a new, empty folder during the
            check.
    """
    watch = Watch()

    def refuse(what: str) -> Callable[..., Any]:
        def refused(*args: Any, **kwargs: Any) -> Any:
            watch.contacts.append(f"{what}{args[1:]!r:.200}")
            raise ConnectionRefusedError(f"{what} is not allowed here")

        return refused

    home = os.environ.get("TORCHX_HOME")
    with tempfile.TemporaryDirectory() as empty, mock.patch.object(tempfile, "tempdir", empty):
        watched = [*map(Path, folders), Path(empty), *([Path(home)] if home else [])]
        before = _snapshot(watched)
        with (
            mock.patch.dict(os.environ, {"TMPDIR": empty}),
            mock.patch.object(socket.socket, "connect", refuse("connect")),
            mock.patch.object(socket.socket, "connect_ex", refuse("connect")),
            mock.patch.object(socket, "getaddrinfo", refuse("resolve")),
            mock.patch.object(subprocess.Popen, "__init__", refuse("process")),
        ):
            yield watch
        after = _snapshot(watched)
    watch.files += sorted(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


def _snapshot(folders: Iterable[Path]) -> dict[str, tuple[int, int]]:
    found = {}
    for folder in folders:
        for path in folder.rglob("*"):
            if "__pycache__" in path.parts:
                continue
            status = path.lstat()
            # A folder's size and time are ignored: they change whenever an entry is added, and
            # each entry is compared itself.
            found[str(path)] = (0, 0) if path.is_dir() else (status.st_size, status.st_mtime_ns)
    return found
