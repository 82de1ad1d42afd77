"""The machine on which TorchX runs, as a host."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import host_error

if TYPE_CHECKING:
    from torchx_specs.schedulers.closing import Closing


class LocalHost(Host):
    """This machine as a host; see :class:`Host` for the methods."""

    def request(self, name: str, *arguments: Any, is_safe: bool = True) -> Any:
        # Imported here, so that dry runs and start-up do not load the module.
        from torchx_kit.hosts import agent

        try:
            return agent.OPERATIONS[name](*arguments)
        except agent.Failure as e:
            raise host_error(*e.args) from None

    @property
    def facts(self) -> Mapping[str, Any]:
        from torchx_kit.hosts import agent

        return agent.greeting()

    def attached_command(self, argv: Sequence[str], *, tty: bool) -> list[str]:
        return list(argv)

    # These methods load no further module.

    def variable_names(self) -> list[str]:
        return list(os.environ)

    def resolve(self, path: str = "") -> str:
        return os.path.abspath(os.path.expanduser(path))

    def read_lines(self, path: str, last: int | None = None) -> Iterator[str]:
        from torchx_kit.logs.file_logs import log_lines

        return log_lines(path, last=last)

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
        from torchx_kit.logs.file_logs import Tail, follow_files

        tail = Tail(is_finished, watch, check_every, partial=partial, closing=closing)
        begins = None if last is None else self.request("last_lines", list(paths), last)
        return follow_files(paths, tail, begins)
