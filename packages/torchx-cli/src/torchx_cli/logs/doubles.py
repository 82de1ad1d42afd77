"""Reads logs from test doubles: objects that other programs' tests pass in place of a Runner."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchx_cli.logs.reader import LogBlocks
from torchx_specs.schedulers.older import OlderLogs

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

    def log_lines(
        app_handle: str, role: str, k: int, regex: str | None, *limits: Any
    ) -> Iterable[str]:
        # Tests expect the call that the older command makes: without options that are not set.
        named = zip(("since", "until", "should_tail", "streams"), limits, strict=True)
        given = {name: value for name, value in named if value is not None}
        return runner.log_lines(app_handle, role, k, regex, **{"streams": None, **given})

    return OlderLogs(runner, log_lines).read_many
