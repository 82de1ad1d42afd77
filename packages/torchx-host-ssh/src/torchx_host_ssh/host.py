"""A machine that OpenSSH reaches, as a host of schedulers."""

from __future__ import annotations

import atexit
import itertools
import os
import posixpath
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torchx_host_ssh import agent
from torchx_host_ssh.channel import Channel, ConnectionLostError
from torchx_host_ssh.openssh import OpenSsh
from torchx_host_ssh.remote_log import follow_remote, read_remote
from torchx_kit.hosts.api import CommandResult, Host, Tree
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.hosts.operations import MakeDirs, Operation, ReadFiles, Result, Run
from torchx_kit.logs.file_logs import Tail
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.workspace.tree import WorkspaceFile
from torchx_specs.errors import WorkspaceError
from torchx_specs.schedulers.closing import Closing

# How many bytes of files one request carries, about.
_REQUEST_BYTES = 1 << 22


def create_host(name: str) -> SshHost:
    """Return a host.

    Args:
        name: A host name, a Host of ``~/.ssh/config``, or ``user@host``.

    Raises:
        RequestError: The name is not valid.
    """
    host = SshHost(name)
    atexit.register(host.close)
    return host


class SshHost(Host):
    """A machine that OpenSSH reaches; see :class:`Host` for the methods.

    The first request connects.

    Args:
        name: A host name, a Host of ``~/.ssh/config``, or ``user@host``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ssh = OpenSsh(name)
        self._channel = Channel(self.ssh)

    def __repr__(self) -> str:
        return f"SshHost({self.ssh.name!r})"

    def close(self) -> None:
        """Close this client's channel; the next request opens another one."""
        self._channel.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        arguments = _run_arguments(Run(argv, stdin, env, timeout))
        return _command_result(self._channel.request("run", *arguments, is_safe=False))

    def batch(self, operations: Sequence[Operation], *, once: str = "") -> list[Result]:
        requests = [_request(one) for one in operations]
        is_safe = bool(once) or not any(isinstance(one, Run) for one in operations)
        results = self._channel.request("batch", requests, once, is_safe=is_safe)
        return [_result(one, result) for one, result in zip(operations, results, strict=False)]

    def attached_command(self, argv: Sequence[str], *, tty: bool) -> list[str]:
        return self.ssh.attached_argv(argv, tty=tty)

    def variable_names(self) -> list[str]:
        return list(self._facts["variables"])

    def user(self) -> str:
        return str(self._facts["user"])

    def resolve(self, path: str = "") -> str:
        if path.startswith("/"):
            return posixpath.normpath(path)
        if path.startswith("~"):
            first, _, rest = path.partition("/")
            own = self._facts["home"]
            home = own if first == "~" else self._channel.request("expand_user", first)
            return posixpath.normpath(posixpath.join(str(home), rest))
        return posixpath.normpath(posixpath.join(str(self._facts["directory"]), path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        return bytes(self._channel.request("read", path, limit))

    def write(self, path: str, data: str | bytes, mode: int = 0o600) -> None:
        self._channel.request("write", path, _bytes(data), mode)

    def list(self, path: str) -> list[str]:
        return list(self._channel.request("list_names", path))

    def exists(self, path: str) -> bool:
        return bool(self._channel.request("exists", path))

    def make_dirs(self, path: str, mode: int = 0o777) -> None:
        self._channel.request("make_dirs", path, mode)

    def remove_tree(self, path: str) -> None:
        self._channel.request("remove_tree", path)

    def remove_files(self, paths: Sequence[str]) -> None:
        self._channel.request("remove_files", list(paths))

    def remove_empty_dir(self, path: str) -> None:
        self._channel.request("remove_empty_dir", path)

    def put(self, local: str, remote: str) -> None:
        self._send(_put_requests(local, remote))

    def find_tree(self, folder: str, name: str) -> str:
        return str(self._channel.request("find_tree", folder, name))

    def put_tree(
        self, folder: str, name: str, files: Sequence[WorkspaceFile], digests: Sequence[bytes]
    ) -> str:
        try:
            return self._put_tree(folder, name, files, digests)
        except ConnectionLostError:
            return self._put_tree(folder, name, files, digests)

    def list_trees(self, folder: str) -> Sequence[Tree]:
        return [Tree(*one) for one in self._channel.request("list_trees", folder)]

    def remove_tree_if_unused(self, folder: str, name: str, used_ns: int) -> bool:
        return bool(self._channel.request("remove_tree_if_unused", folder, name, used_ns))

    def _put_tree(
        self, folder: str, name: str, files: Sequence[WorkspaceFile], digests: Sequence[bytes]
    ) -> str:
        partial = posixpath.join(folder, f".{secrets.token_hex(6)}.partial")
        listed = [
            [one.path, one.mode, digest.hex(), one.link]
            for one, digest in zip(files, digests, strict=True)
        ]
        make = ("make_tree", (folder, name, listed, partial))
        # It is not repeated in the same directory, where it may still run.
        path, lacking = self._channel.request(make[0], *make[1], is_safe=False)
        if lacking:
            sources = dict(zip((digest.hex() for digest in digests), files, strict=True))
            parts = (
                part
                for digest in lacking
                for part in _parts(
                    sources[digest].chunks(), posixpath.join(partial, "new", digest), 0o600
                )
            )
            path, lacking = self._send(itertools.chain(parts, [make]))[-1]
        if lacking:
            raise WorkspaceError("the workspace changed while it was copied; submit again")
        return str(path)

    def _send(self, requests: Iterable[tuple[str, tuple[Any, ...]]]) -> Any:
        """Send operations in requests of a limited size, and return the results of the last one."""
        batch: list[Any] = []
        size = 0
        for request in requests:
            if size >= _REQUEST_BYTES:
                self._channel.request("batch", batch, is_safe=False)
                batch, size = [], 0
            batch.append(request)
            size += len(request[1][3]) if request[0] == "put_part" else 0
        return self._channel.request("batch", batch, is_safe=False)

    def read_lines(self, path: str, last: int | None = None) -> Iterator[str]:
        return read_remote(self._channel, path, last)

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
        tail = Tail(is_finished, watch, check_every, partial=partial, closing=closing)
        return follow_remote(self._channel, paths, tail, last)

    @property
    def _facts(self) -> dict[str, Any]:
        return self._channel.connection().facts


def _bytes(data: str | bytes) -> bytes:
    return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data


def _run_arguments(run: Run) -> tuple[Any, ...]:
    return list(run.argv), run.stdin, dict(run.env or {}), run.timeout


def _request(operation: Operation) -> tuple[str, tuple[Any, ...]]:
    """Return an operation as the helper program knows it."""
    if isinstance(operation, Run):
        return "run", _run_arguments(operation)
    if isinstance(operation, ReadFiles):
        wanted = operation
        return "read_files", (wanted.folder, list(wanted.names), wanted.nested, wanted.limit)
    if isinstance(operation, MakeDirs):
        return "make_dirs", (operation.path, operation.mode)
    return "write", (operation.path, _bytes(operation.data), operation.mode)


def _result(operation: Operation, result: Any) -> Result:
    if isinstance(operation, Run):
        return _command_result(result)
    return dict(result) if isinstance(operation, ReadFiles) else None


def _command_result(result: Any) -> CommandResult:
    code, stdout, stderr = result
    return CommandResult(int(code), agent.to_text(stdout), agent.to_text(stderr))


def _put_requests(local: str, remote: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the requests that copy a file, a symbolic link, or a directory tree."""
    status = os.lstat(local)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        yield "put_link", (remote, os.readlink(local))
    elif stat.S_ISDIR(status.st_mode):
        yield "make_dirs", (remote, mode | stat.S_IRWXU)
        for name in sorted(os.listdir(local)):
            yield from _put_requests(os.path.join(local, name), posixpath.join(remote, name))
        yield "set_mode", (remote, mode)
    else:
        try:
            fd = open_regular(local, os.O_RDONLY)
        except OSError as e:
            raise HostFileError(f"cannot read {local}: {e.strerror or e}") from None
        with open(fd, "rb") as file:
            chunks = iter(lambda: file.read(_REQUEST_BYTES), b"")
            yield from _parts(chunks, remote, mode, status.st_mtime_ns)


def _parts(
    chunks: Iterable[bytes], remote: str, mode: int, mtime_ns: int | None = None
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the requests that write a file."""
    token, position, data = secrets.token_hex(6), 0, b""
    for chunk in chunks:
        if data:
            yield "put_part", (remote, token, position, data, -1, None)
        position += len(data)
        data = chunk
    yield "put_part", (remote, token, position, data, mode, mtime_ns)
