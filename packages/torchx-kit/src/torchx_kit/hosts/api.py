"""The interface through which schedulers reach their cluster: its commands and its files."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchx_kit.hosts.operations import Operation, ReadFiles, Result
    from torchx_kit.workspace.tree import WorkspaceFile
    from torchx_specs.schedulers.closing import Closing


@dataclass(frozen=True)
class CommandResult:
    """The result of a command.

    Attributes:
        exit_code: The exit code; negative for a signal, as in :mod:`subprocess`.
        stdout: Standard output. Bytes that are not UTF-8 become surrogate escapes.
        stderr: Standard error, decoded in the same way.
    """

    exit_code: int
    stdout: str
    stderr: str


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
    on which TorchX runs; other implementations reach a login node over the network.

    Paths are absolute POSIX paths of the host, in particular those that :meth:`resolve` returns.

    Every method may raise :class:`~torchx_kit.hosts.errors.HostUnreachableError`, if the host
    cannot be reached or the connection breaks. Then it is unknown whether the host executed the
    request. These errors mean that the host did not execute it:

    - :class:`~torchx_kit.hosts.errors.HostFileNotFoundError`: a file or directory does not exist.
    - :class:`~torchx_kit.hosts.errors.HostFileError`: any other error of the file system, such as
      missing permissions or a full disk. The message has the path and the system's reason.

    All methods may be called from any thread.

    Attributes:
        name: The name of the host for users, as in ``slurm@login1``; empty for this machine.
    """

    name: str = ""

    @abstractmethod
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
        from torchx_kit.hosts.operations import MakeDirs, ReadFiles, Run

        results: list[Result] = []
        for operation in operations:
            if isinstance(operation, Run):
                result = self.run(
                    operation.argv,
                    stdin=operation.stdin,
                    env=operation.env,
                    timeout=operation.timeout,
                )
                results.append(result)
                if result.exit_code:
                    break
            elif isinstance(operation, ReadFiles):
                results.append(dict(self._read_files(operation)))
            else:
                if isinstance(operation, MakeDirs):
                    self.make_dirs(operation.path, operation.mode)
                else:
                    self.write(operation.path, operation.data, operation.mode)
                results.append(None)
        return results

    def _read_files(self, wanted: ReadFiles, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        from torchx_kit.hosts.errors import HostFileError

        try:
            names = self.list(f"{wanted.folder}/{prefix}")
        except HostFileError:  # also if it is a file
            return
        for name in names:
            path = f"{wanted.folder}/{prefix}{name}"
            if any(fnmatchcase(name, pattern) for pattern in wanted.names):
                with contextlib.suppress(HostFileError):
                    yield f"{prefix}{name}", self.read(path, wanted.limit)
            elif wanted.nested and not prefix:
                yield from self._read_files(wanted, f"{name}/")

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
        """Return the names of the environment variables of commands; an empty list if unknown."""
        return []

    @abstractmethod
    def user(self) -> str:
        """Return the name of the user that runs the commands; if it has no name, return its id."""

    @abstractmethod
    def resolve(self, path: str = "") -> str:
        """Return the absolute path of a path on the host.

        ``~`` becomes the home directory. A relative path is relative to the directory in which
        commands run. An absolute path is resolved without a request to the host, so that a dry run
        sends no request.

        Args:
            path: The path; an empty path means the directory in which commands run.
        """

    @abstractmethod
    def read(self, path: str, limit: int | None = None) -> bytes:
        """Return the content of a file.

        Args:
            path: The file.
            limit: The most bytes to return, from the beginning of the file; None means all.
        """

    def read_text(self, path: str) -> str:
        """Return a file's content, decoded as UTF-8; invalid bytes become surrogate escapes."""
        return self.read(path).decode("utf-8", "surrogateescape")

    @abstractmethod
    def write(self, path: str, data: str | bytes, mode: int = 0o600) -> None:
        """Write a file atomically: readers see the old content or the new one, never a part.

        Args:
            path: The file; its directory must exist.
            data: The content; text is encoded as UTF-8, and surrogate escapes become the original
                bytes.
            mode: Permission bits of the file; by default only its owner may read it.
        """

    @abstractmethod
    def list(self, path: str) -> list[str]:
        """Return the sorted names of the files and directories in a directory."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Return True if a file or directory exists and is visible to this user."""

    @abstractmethod
    def make_dirs(self, path: str, mode: int = 0o777) -> None:
        """Create a directory and its parents; an existing directory is not an error.

        Args:
            path: The directory.
            mode: Permission bits of a new directory, but not of its parents; subject to the umask.
        """

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it; a missing directory is not an error."""

    @abstractmethod
    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files; a missing file is not an error."""

    @abstractmethod
    def remove_empty_dir(self, path: str) -> None:
        """Remove a directory if it is empty; otherwise do nothing."""

    @abstractmethod
    def put(self, local: str, remote: str) -> None:
        """Copy a file or a directory tree of this machine to the host.

        Permission bits and symbolic links are kept. A file is replaced atomically. In an existing
        directory, files of the same name are replaced and other files stay.

        Args:
            local: A file or directory of the machine on which TorchX runs.
            remote: The path of the copy on the host; the directory above it must exist.

        Raises:
            FileNotFoundError: ``local`` does not exist.
        """

    def find_tree(self, folder: str, name: str) -> str:
        """Return the unchanged files of a tree, and mark the tree as used; empty if there is none.

        Args:
            folder: The directory of trees.
            name: The name of the tree, a digest of its files.

        Raises:
            NotSupportedError: This kind of host has no trees. A subclass that does not override
                this method raises the error.
        """
        from torchx_specs.schedulers.sessions import NotSupportedError

        raise NotSupportedError(f"{type(self).__name__} cannot store the files of workspaces")

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
            NotSupportedError: As for :meth:`find_tree`.
            WorkspaceError: A file cannot be read, or changes while it is sent.
        """
        return self.find_tree(folder, name)

    def list_trees(self, folder: str) -> Sequence[Tree]:
        """Return the trees of a directory, and what interrupted requests have left there.

        Raises:
            NotSupportedError: As for :meth:`find_tree`.
        """
        self.find_tree(folder, "")
        return []

    def remove_tree_if_unused(self, folder: str, name: str, used_ns: int) -> bool:
        """Remove a tree, and return True; return False if it was used in the meantime.

        Args:
            folder: The directory of trees.
            name: The name of the tree.
            used_ns: When the tree was last used, from :meth:`list_trees`.
        """
        return not self.find_tree(folder, name)

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
