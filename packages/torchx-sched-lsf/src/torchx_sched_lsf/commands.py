"""Calling LSF's commands, never longer than a time limit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

from torchx_specs.errors import BackendError

# What commands say, or wait with, while nobody answers them.
_UNREACHABLE = ("lsf is down", "please wait", "cannot connect", "communication", "not responding")
# What bjobs says when there is nothing; its exit code is an error's.
_NOTHING = ("is not found", "no job found", "no unfinished job found", "no matching job")


class LsfError(BackendError):
    """A command of LSF failed; the text has LSF's own words."""


class UnreachableError(LsfError):
    """LSF does not answer; whether it has taken a request is not known."""


class Lsf:
    """Runs the commands.

    Args:
        timeout: seconds that one call may take
        patience: seconds to try again for while nobody answers
        sleep: how to wait
    """

    def __init__(
        self,
        timeout: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout = timeout
        self.patience = patience
        self.sleep = sleep

    def run(self, *command: str, timeout: float | None = None) -> str:
        """Returns what a command prints.

        Raises:
            LsfError: it is not there, failed or did not answer
        """
        code, out, err = self._call(command, timeout)
        if code:
            said = own_words(err or out) or f"exit code {code}"
            raise _error(command[0], said)
        return out

    def ask(self, *command: str) -> str:
        """Returns what a query prints, nothing if it has found nothing; asks again for a while if
        nobody answers.

        Raises:
            LsfError: it is not there, failed or nobody answered in time
        """
        deadline = time.monotonic() + self.patience
        pause = 0.5
        while True:
            try:
                code, out, err = self._call(command)
                said = own_words(err)
                nothing = any(words in said.lower() for words in _NOTHING)
                if not code or nothing:
                    return out
                raise _error(command[0], said or f"exit code {code}")
            except UnreachableError:
                if time.monotonic() + pause > deadline:
                    raise
            self.sleep(pause)
            pause = min(pause * 2, 10.0)

    def _call(self, command: Sequence[str], timeout: float | None = None) -> tuple[int, str, str]:
        import os
        import subprocess

        name = command[0]
        limit = timeout or self.timeout
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=limit,
                check=False,
                env={**os.environ, "LC_ALL": "C"} if name != "/bin/bash" else None,
            )
        except FileNotFoundError:
            raise LsfError(
                f"no LSF here: there is no command {name} on PATH; run this on a host of the"
                " cluster that users log in to, with LSF's profile sourced"
            ) from None
        except PermissionError as e:
            raise LsfError(f"cannot run {name}: {e.strerror}") from None
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"{name} did not answer within {limit:g} s") from None
        return done.returncode, done.stdout, done.stderr


def own_words(stderr: str) -> str:
    """Returns what a command said, on one line, each thing once."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in stderr.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))


def _error(name: str, said: str) -> LsfError:
    if any(words in said.lower() for words in _UNREACHABLE):
        return UnreachableError(f"{name}: {said}")
    return LsfError(f"{name}: {said}")
