"""Reads logs from test doubles: objects that other programs' tests pass in place of a Runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torchx_cli.logs.reader import LogBlocks
from torchx_runner.logs.parallel import Replica
from torchx_runner.logs.scheduler_logs import Block

if TYPE_CHECKING:
    from torchx_runner import Runner


def is_double(runner: Runner) -> bool:
    """Return True if an object is neither a Runner nor of a class derived from Runner."""
    from torchx_runner import Runner

    # isinstance() would return True for a mock with `spec=Runner`.
    return not issubclass(type(runner), Runner)


def log_blocks_of(runner: Runner) -> LogBlocks:
    """Return the function that reads the logs of several replicas.

    A test double is read with ``log_lines``, the only such method of older releases.
    """
    if not is_double(runner):
        return runner.log_blocks

    def log_blocks(
        app_handle: str, replicas: Iterable[Replica], regex: str | None, **options: Any
    ) -> Iterator[Block]:
        from torchx_runner.logs.parallel import read_in_threads

        def read(role: str, k: int) -> Iterable[str]:
            # Tests expect the call that the older command makes: without options that are not set.
            given = {name: value for name, value in options.items() if value is not None}
            return runner.log_lines(app_handle, role, k, regex, **{"streams": None, **given})

        return read_in_threads(read, replicas, options["should_tail"])

    return log_blocks
