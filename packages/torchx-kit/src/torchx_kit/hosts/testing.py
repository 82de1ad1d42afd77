"""A host for tests of schedulers that reach their cluster through a host."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torchx_kit.hosts.errors import HostFileError
from torchx_kit.hosts.local import LocalHost
from torchx_kit.hosts.operations import CommandResult


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

    def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
        if name == "run":
            return self._command(*arguments)
        if name == "batch":
            results = []
            for operation, its_arguments in arguments[0]:
                results.append(self.request(operation, *its_arguments))
                if operation == "run" and results[-1][0]:
                    break
            return results
        first = arguments[0]
        place = self._local(first) if isinstance(first, str) else [*map(self._local, first)]
        return super().request(name, place, *arguments[1:])

    def _command(self, argv: list[str], *_: Any) -> list[Any]:
        self.commands.append(argv)
        result = self._run(argv)
        if isinstance(result, str):
            return [0, result.encode(), b""]
        return [result.exit_code, result.stdout.encode(), result.stderr.encode()]

    def user(self) -> str:
        return "fake-user"

    def resolve(self, path: str = "") -> str:
        if path.startswith("~"):
            path = path[1:].lstrip("/")
        return posixpath.normpath(posixpath.join(self.HOME, path))

    def read_lines(self, path: str, last: int | None = None) -> Iterator[str]:
        return super().read_lines(self._local(path), last)

    def follow(
        self, paths: Sequence[str], *args: Any, watch: Sequence[str] = (), **options: Any
    ) -> Iterator[str]:
        paths, watch = ([self._local(path) for path in each] for each in (paths, watch))
        return super().follow(paths, *args, watch=watch, **options)

    def _local(self, path: str) -> str:
        if not path.startswith("/cluster/"):
            raise HostFileError(f"{path} is not below /cluster")
        return self._root + path
