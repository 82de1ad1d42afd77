"""The interface through which schedulers reach their cluster: its commands and its files."""

from __future__ import annotations

import itertools
import os
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torchx_kit.hosts.operations import CommandResult as CommandResult
from torchx_kit.hosts.operations import (
    Operation,
    Request,
    Result,
    Run,
    Write,
    as_request,
    as_result,
)
from torchx_specs.errors import WorkspaceError

if TYPE_CHECKING:
    from torchx_kit.workspace.tree import WorkspaceFile
    from torchx_specs.schedulers.closing import Closing

# How many bytes of files one request carries, about.
_REQUEST_BYTES = 1 << 22


@dataclass(frozen=True)
class Tree:
    """A copy of a workspace on a host.

    Attributes:
        name: The name, a digest of the files; it begins with ``.`` if the copy is not complete.
        used_ns: When a submission used it last, in nanoseconds since 1970, by the host's clock.
        size: The size of all files in bytes.
        is_unchanged: Whether it has only the files of the workspace and compiled Python code.
    """

    name: str
    used_ns: int
    size: int
    is_unchanged: bool


class Host(ABC):
    """A machine of a cluster: runs commands, reads and writes files.

    Schedulers for batch systems run commands and access job files (scripts, records, logs) only
    through this interface. :class:`torchx_kit.hosts.local.LocalHost` implements it for the machine
    on which TorchX runs; other implementations reach a login node over the network. All of them
    execute the operations of :mod:`torchx_kit.hosts.agent`.

    Paths are absolute POSIX paths of the host, in particular those that :meth:`resolve` returns.

    Every method may raise :class:`~torchx_kit.hosts.errors.HostUnreachableError`, if the host
    cannot be reached or the connection breaks. Then it is unknown whether the host executed the
    request. :class:`~torchx_kit.hosts.errors.HostFileError` is an error of the file system, such as
    a missing file, missing permissions or a full disk. The message has the path and the system's
    reason.

    All methods may be called from any thread.

    Attributes:
        name: The name of the host for users, as in ``slurm@login1``; empty for this machine.
    """

    name: str = ""

    @abstractmethod
    def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
        """Execute an operation of :mod:`torchx_kit.hosts.agent`, and return its result.

        Args:
            name: The name of the operation.
            arguments: The operation's arguments.
            is_safe: Whether the operation may be executed twice, if the connection breaks.

        Raises:
            HostError: The operation failed.
            HostUnreachableError: The host cannot be reached, or the connection broke.
        """

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """What is known of the host; see :func:`torchx_kit.hosts.agent.greeting`."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Run a command without a shell, and return its output, whatever its exit code.

        Args:
            argv: The program, which is searched on the host's PATH, and its arguments.
            stdin: Standard input of the command; None means empty input.
            env: Variables to set for the command, in addition to the host's environment. The value
                None removes a variable.
            timeout: How long the command may take, in seconds; None for no limit.

        Raises:
            CommandNotFoundError: The host has no such program.
            CommandTimeoutError: The command took longer than ``timeout``. It was killed, as far as
                possible; whether it had an effect is unknown.
            HostError: The program cannot be started.
        """
        name, arguments = as_request(Run(argv, stdin, env, timeout))
        return CommandResult.of(self.request(name, *arguments, is_safe=False))

    def batch(self, operations: Sequence[Operation], *, once: str = "") -> list[Result]:
        """Execute operations in their order, in one request if the host is remote.

        A command with another exit code than 0 ends the request: the operations after it are not
        executed, and the result has no items for them.

        Args:
            operations: The operations.
            once: A file of the host that identifies the request. If the connection breaks, the same
                request may be sent again: it continues where it was interrupted, and executes no
                command twice. The directory of the file is created. A local host ignores it.

        Returns:
            For each operation: the result of a command, the content of files, or None.

        Raises:
            HostError: As the method of the same operation. The operations before it were executed,
                the operations after it were not.
            CommandTimeoutError: With ``once``, also if a command was interrupted.
        """
        requests = [as_request(one) for one in operations]
        is_safe = bool(once) or not any(isinstance(one, Run) for one in operations)
        results = self.request("batch", requests, once if self.name else "", is_safe=is_safe)
        return [as_result(one, result) for one, result in zip(operations, results, strict=False)]

    def attached_command(self, argv: Sequence[str], *, tty: bool) -> list[str]:
        """Return an argv that runs a command on the host when this machine executes it.

        The local process passes on standard input, output and error, and exits with the command's
        exit code.

        Args:
            argv: The program and its arguments.
            tty: Whether the streams are a terminal.

        Raises:
            NotSupportedError: This kind of host cannot run interactive commands. A subclass that
                does not override this method raises the error.
        """
        from torchx_specs.schedulers.sessions import NotSupportedError

        raise NotSupportedError(f"{type(self).__name__} cannot run interactive commands")

    def variable_names(self) -> list[str]:
        """Return the names of the environment variables of commands."""
        return list(self.facts["variables"])

    def user(self) -> str:
        """Return the name of the user that runs the commands; if it has no name, return its id."""
        return str(self.facts["user"])

    def resolve(self, path: str = "") -> str:
        """Return the absolute path of a path on the host.

        ``~`` becomes the home directory. A relative path is relative to the directory in which
        commands run. An absolute path is resolved without a request to the host, so that a dry run
        sends no request.

        Args:
            path: The path; an empty path means the directory in which commands run.
        """
        if path.startswith("~"):
            first, _, rest = path.partition("/")
            home = self.facts["home"] if first == "~" else self.request("expand_user", first)
            path = posixpath.join(home, rest)
        elif not path.startswith("/"):
            path = posixpath.join(self.facts["directory"], path)
        return posixpath.normpath(path)

    def read(self, path: str, limit: int | None = None) -> bytes:
        """Return the content of a file.

        Args:
            path: The file.
            limit: The most bytes to return, from the beginning of the file; None means all.
        """
        return bytes(self.request("read", path, limit))

    def read_text(self, path: str) -> str:
        """Return a file's content, decoded as UTF-8; invalid bytes become surrogate escapes."""
        return self.read(path).decode("utf-8", "surrogateescape")

    def write(self, path: str, data: str | bytes, mode: int = 0o600) -> None:
        """Write a file atomically: readers see the old content or the new one, never a part.

        Args:
            path: The file; its directory must exist.
            data: The content; text is encoded as UTF-8, and surrogate escapes become the original
                bytes.
            mode: Permission bits of the file; by default only its owner may read it.
        """
        name, arguments = as_request(Write(path, data, mode))
        self.request(name, *arguments)

    def list(self, path: str) -> list[str]:
        """Return the sorted names of the files and directories in a directory."""
        return list(self.request("list_names", path))

    def exists(self, path: str) -> bool:
        """Return True if a file or directory exists and is visible to this user."""
        return bool(self.request("exists", path))

    def make_dirs(self, path: str, mode: int = 0o777) -> None:
        """Create a directory and its parents; an existing directory is not an error.

        Args:
            path: The directory.
            mode: Permission bits of a new directory, but not of its parents; subject to the umask.
        """
        self.request("make_dirs", path, mode)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; a missing directory is not an error."""
        self.request("remove_tree", path)

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files; a missing file is not an error."""
        self.request("remove_files", list(paths))

    def remove_empty_dir(self, path: str) -> None:
        """Remove a directory if it is empty; otherwise do nothing."""
        self.request("remove_empty_dir", path)

    def put(self, local: str, remote: str) -> None:
        """Copy the files and directories of a directory of this machine to the host.

        Only the user may use the copies. In an existing directory, files of the same name are
        replaced and other files stay.

        Args:
            local: A directory of the machine on which TorchX runs.
            remote: The path of the copy on the host; the directory above it must exist.
        """
        self._send(_copies(local, remote))

    def find_tree(self, folder: str, name: str) -> str:
        """Return the unchanged files of a tree, and mark the tree as used; empty if there is none.

        Args:
            folder: The directory of trees.
            name: The name of the tree, a digest of its files.
        """
        return str(self.request("find_tree", folder, name))

    def put_tree(
        self, folder: str, name: str, files: Sequence[WorkspaceFile], digests: Sequence[bytes]
    ) -> str:
        """Create a tree, and return the directory with its files.

        Only files that no tree of the directory has are sent.

        Args:
            folder: The directory of trees.
            name: The name of the tree, a digest of its files.
            files: The files and links.
            digests: The SHA-256 of each file, empty for a link.

        Raises:
            WorkspaceError: A file cannot be read, or changes while it is sent.
        """
        partial = posixpath.join(folder, f".{os.urandom(6).hex()}.partial")
        listed = [
            [one.path, one.mode, digest.hex(), one.link]
            for one, digest in zip(files, digests, strict=True)
        ]
        make = ("make_tree", (folder, name, listed, partial))
        # It is not repeated in the same directory, where it may still run.
        path, lacking = self.request(make[0], *make[1], is_safe=False)
        if lacking:
            sources = dict(zip((digest.hex() for digest in digests), files, strict=True))
            parts = (
                part
                for digest in lacking
                for part in _parts(sources[digest].chunks(), posixpath.join(partial, "new", digest))
            )
            path, lacking = self._send(itertools.chain(parts, [make]))[-1]
        if lacking:
            raise WorkspaceError("the workspace changed while it was copied; submit again")
        return str(path)

    def list_trees(self, folder: str) -> Sequence[Tree]:
        """Return the trees of a directory, and what interrupted requests have left there."""
        return [Tree(*one) for one in self.request("list_trees", folder)]

    def remove_tree_if_unused(self, folder: str, name: str, used_ns: int) -> bool:
        """Remove a tree, and return True; return False if it was used in the meantime.

        Args:
            folder: The directory of trees.
            name: The name of the tree.
            used_ns: When the tree was last used, from :meth:`list_trees`.
        """
        return bool(self.request("remove_tree_if_unused", folder, name, used_ns))

    def _send(self, requests: Iterable[Request]) -> Any:
        """Send operations in requests of a limited size, and return the results of the last one."""
        batch: list[Request] = []
        size = 0
        for request in requests:
            if size >= _REQUEST_BYTES:
                self.request("batch", batch, is_safe=False)
                batch, size = [], 0
            batch.append(request)
            size += len(request[1][3]) if request[0] == "put_part" else 0
        return self.request("batch", batch, is_safe=False)

    @abstractmethod
    def read_lines(self, path: str, last: int | None = None) -> Iterator[str]:
        r"""Return the lines that a file has now, lazily.

        Only ``\n`` ends a line. Lines keep the ``\n``; the last line may lack it. Bytes that are
        not UTF-8 become U+FFFD.

        Args:
            path: The file.
            last: Return at most this many lines from the end of the file; None means all lines.

        Raises:
            BackendError: While reading: the file does not exist or cannot be read.
        """

    @abstractmethod
    def follow(
        self,
        paths: Sequence[str],
        is_finished: Callable[[], bool],
        *,
        watch: Sequence[str] = (),
        check_every: float = 2.0,
        last: int | None = None,
        partial: bool = False,
        closing: Closing | None = None,
    ) -> Iterator[str]:
        r"""Yield the lines of growing files as they are written, until nothing more is written.

        Lines are decoded as by :meth:`read_lines`. An unfinished line is yielded only when its file
        is finished, unless ``partial`` is True. Lines of one file keep their order; several files
        are merged line by line.
        A file may appear later, or never.

        Args:
            paths: The files.
            is_finished: Returns True once nothing more will be written.
            watch: Files whose change may mean that ``is_finished`` has become true.
            check_every: How often to call ``is_finished`` if no watched file changes, in seconds.
            last: How many existing lines to yield, counted from the end, as if the files were
                joined in the order of ``paths``; None for all.
            partial: Whether to yield also text that was written without a newline, as a
                :class:`~torchx_specs.schedulers.log_items.PartialLine`.
            closing: Ends the iteration when the scheduler is closed.

        Raises:
            BackendError: While reading: a file cannot be read, or ``is_finished`` raised the error.
        """


def _copies(local: str, remote: str) -> Iterator[Request]:
    """Yield the operations that copy a directory."""
    for folder, _, names in os.walk(local):
        place = posixpath.normpath(posixpath.join(remote, os.path.relpath(folder, local)))
        yield "make_dirs", (place, 0o700)
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                chunks = iter(partial(file.read, _REQUEST_BYTES), b"")
                yield from _parts(chunks, posixpath.join(place, name))


def _parts(chunks: Iterable[bytes], remote: str) -> Iterator[Request]:
    """Yield the operations that write a file."""
    token, position, data = os.urandom(6).hex(), 0, b""
    for chunk in chunks:
        if data:
            yield "put_part", (remote, token, position, data, None)
        position += len(data)
        data = chunk
    yield "put_part", (remote, token, position, data, 0o600)
