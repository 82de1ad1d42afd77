"""A machine that OpenSSH reaches, as a host of schedulers."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torchx_host_ssh.channel import Channel, ConnectionLostError
from torchx_host_ssh.openssh import OpenSsh
from torchx_host_ssh.remote_log import follow_remote, read_remote
from torchx_kit.hosts.api import Host
from torchx_kit.logs.file_logs import Tail
from torchx_kit.workspace.tree import WorkspaceFile
from torchx_specs.schedulers.closing import Closing


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

    def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
        return self._channel.request(name, *arguments, is_safe=is_safe)

    @property
    def facts(self) -> Mapping[str, Any]:
        return self._channel.connection().facts

    def attached_command(self, argv: Sequence[str], *, tty: bool) -> list[str]:
        return self.ssh.attached_argv(argv, tty=tty)

    def put_tree(
        self, folder: str, name: str, files: Sequence[WorkspaceFile], digests: Sequence[bytes]
    ) -> str:
        try:
            return super().put_tree(folder, name, files, digests)
        except ConnectionLostError:
            return super().put_tree(folder, name, files, digests)

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
