"""Calling a cluster's commands: each within a time limit, queries again while nobody answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 10.0


class ClusterCommands:
    """Runs commands.

    Args:
        timeout: seconds that one call may take
        patience: seconds to try again for while nobody answers
        sleep: how to wait
    """

    #: What failures are raised as ...
    failed: ClassVar[type[BackendError]]
    #: ... and, more precisely, that nobody answers: whether a request was taken is not known then.
    unreachable: ClassVar[type[BackendError]]
    #: What to say if there is no such command, with ``{name}`` for the command's.
    absent: ClassVar[str]

    def __init__(
        self,
        timeout: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self.patience = patience
        self.sleep = sleep

    def call(
        self,
        command: Sequence[str],
        *,
        timeout: float | None = None,
        variables: dict[str, str] | None = None,
    ) -> CompletedProcess[str]:
        """Returns what came of a command, whatever its exit code.

        Args:
            command: program and arguments
            timeout: seconds that it may take, instead of those of all calls
            variables: to set for it

        Raises:
            BackendError: it is not there, cannot be run or did not end in time
        """
        import os
        import subprocess

        name = command[0]
        limit = timeout or self.timeout
        try:
            return subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=limit,
                check=False,
                env={**os.environ, **variables} if variables else None,
            )
        except FileNotFoundError:
            raise self.failed(self.absent.format(name=name)) from None
        except PermissionError as e:
            raise self.failed(f"cannot run {name}: {e.strerror}") from None
        except subprocess.TimeoutExpired:
            raise self.unreachable(f"{name} did not answer within {limit:g} s") from None

    def again_for_a_while(self, ask: Callable[[], str]) -> str:
        """Returns what ``ask`` returns; calls it again for a while if nobody answers.

        Raises:
            BackendError: what it raises; that nobody answered only in the end
        """
        deadline = time.monotonic() + self.patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return ask()
            except self.unreachable:
                if time.monotonic() + pause > deadline:
                    raise
            self.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
