"""Calling LSF's commands, never longer than a time limit."""

from __future__ import annotations

import re

from torchx_kit.hosts.commands import ClusterCommands
from torchx_specs.errors import BackendError

# What commands say, or wait with, while nobody answers them.
_UNREACHABLE = ("lsf is down", "please wait", "cannot connect", "communication", "not responding")
# What bjobs says when there is nothing; its exit code is an error's.
_NOTHING = ("is not found", "no job found", "no unfinished job found", "no matching job")

# What is read is not translated.
_PLAIN = {"LC_ALL": "C"}


class LsfError(BackendError):
    """A command of LSF failed; the text has LSF's own words."""


class UnreachableError(LsfError):
    """LSF does not answer; whether it has taken a request is not known."""


class Lsf(ClusterCommands):
    """Runs the commands; what they fail with is a :class:`LsfError`."""

    failed = LsfError
    unreachable = UnreachableError
    absent = (
        "no LSF here: there is no command {name} on PATH; run this on a host of the"
        " cluster that users log in to, with LSF's profile sourced"
    )

    def run(self, *command: str, timeout: float | None = None) -> str:
        """Returns what a command prints.

        Raises:
            LsfError: it is not there, failed or did not answer
        """
        # a script has what it calls speak the user's language
        variables = None if command[0] == "/bin/bash" else _PLAIN
        done = self.call(command, timeout=timeout, variables=variables)
        if done.returncode:
            said = own_words(done.stderr or done.stdout) or f"exit code {done.returncode}"
            raise _error(command[0], said)
        return done.stdout

    def ask(self, *command: str) -> str:
        """Returns what a query prints, nothing if it has found nothing; asks again for a while if
        nobody answers.

        Raises:
            LsfError: it is not there, failed or nobody answered in time
        """

        def once() -> str:
            done = self.call(command, variables=_PLAIN)
            said = own_words(done.stderr)
            if done.returncode and not any(words in said.lower() for words in _NOTHING):
                raise _error(command[0], said or f"exit code {done.returncode}")
            return done.stdout

        return self.again_for_a_while(once)


def own_words(stderr: str) -> str:
    """Returns what a command said, on one line, each thing once."""
    lines = (re.sub(r"\s+", " ", line).strip() for line in stderr.splitlines())
    return "; ".join(dict.fromkeys(line for line in lines if line))


def _error(name: str, said: str) -> LsfError:
    if any(words in said.lower() for words in _UNREACHABLE):
        return UnreachableError(f"{name}: {said}")
    return LsfError(f"{name}: {said}")
