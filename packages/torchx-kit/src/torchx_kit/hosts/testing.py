"""A host for tests of schedulers that reach their cluster through a host."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torchx_kit.hosts.api import CommandResult
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.hosts.local import LocalHost

if TYPE_CHECKING:
    from torchx_specs.schedulers.closing import Closing


class FakeHost(LocalHost):
    """A host whose files are all below ``/cluster``, a directory that this machine lacks.

    So a scheduler fails if it accesses files without using its host.

    Args:
        root: The local directory in which the files are stored.
        run: Gets the argv of a command, and returns its result, or only its standard output.

    Attributes:
        commands: The argv of each command that was run.
    """

    HOME = "/cluster/home"

    def __init__(self, root: str, run: Callable[[list[str]], str | CommandResult]) -> None:
        self._root = root
        self._run = run
        self.commands: list[list[str]] = []
        self.make_dirs(self.HOME)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        self.commands.append(list(argv))
        result = self._run(list(argv))
        return CommandResult(0, result, "") if isinstance(result, str) else result

    def user(self) -> str:
        return "fake-user"

    def resolve(self, path: str = "") -> str:
        if path.startswith("~"):
            path = path[1:].lstrip("/")
        return posixpath.normpath(posixpath.join(self.HOME, path))

    def read(self, path: str, limit: int | None = None) -> bytes:
        return super().read(self._local(path), limit)

    def write(self, path: str, data: str | bytes, mode: int = 0o600) -> None:
        super().write(self._local(path), data, mode)

    def list(self, path: str) -> list[str]:
        return super().list(self._local(path))

    def exists(self, path: str) -> bool:
        return super().exists(self._local(path))

    def make_dirs(self, path: str, mode: int = 0o777) -> None:
        super().make_dirs(self._local(path), mode)

    def remove_tree(self, path: str) -> None:
        super().remove_tree(self._local(path))

    def remove_files(self, paths: Sequence[str]) -> None:
        super().remove_files([self._local(path) for path in paths])

    def remove_empty_dir(self, path: str) -> None:
        super().remove_empty_dir(self._local(path))

    def put(self, local: str, remote: str) -> None:
        super().put(local, self._local(remote))

    def read_lines(self, path: str, last: int | None = None) -> Iterator[str]:
        return super().read_lines(self._local(path), last)

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
        return super().follow(
            [self._local(path) for path in paths],
            is_finished,
            watch=[self._local(path) for path in watch],
            check_every=check_every,
            last=last,
            partial=partial,
            closing=closing,
        )

    def _local(self, path: str) -> str:
        if not path.startswith("/cluster/"):
            raise HostFileError(f"{path} is not below /cluster")
        return self._root + path
