"""Run probes: functions with assertions about the behaviour of ``torchx``, ours or a release.

This module imports only the standard library and ``torchx``, so that the same probes run in the
environment of a released peer, which is a release of upstream's TorchX.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass

OLD = "0.7.0"
NEW = "2026.10.26"

Function = Callable[[], None]


@dataclass(frozen=True)
class Probe:
    """A function that checks one behaviour, and the peers that have this behaviour.

    Args:
        function: Raises an exception if ``torchx`` does not have the behaviour.
        releases: The versions of the released peers that have the behaviour.
    """

    function: Function
    releases: tuple[str, ...]


PROBES: dict[str, Probe] = {}


def probe(*releases: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a probe, which ours and ``releases`` must pass."""

    def register(function: Function) -> Function:
        if function.__name__ in PROBES:
            raise ValueError(f"two probes are named {function.__name__}")
        PROBES[function.__name__] = Probe(function, releases)
        return function

    return register


def outcome(function: Function) -> str | None:
    """Run a probe in a child process and an empty directory; return its error, or None."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as null:
            os.chdir(folder)
            os.environ["HOME"] = folder
            os.dup2(null.fileno(), 1)
            os.dup2(null.fileno(), 2)
            try:
                function()
                message = ""
            except BaseException as e:
                last = traceback.extract_tb(e.__traceback__)[-1]
                message = f"{type(e).__name__}: {e} [line {last.lineno}: {last.line}]"
        with open(write, "w") as pipe:
            pipe.write(message)
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        message = pipe.read()
    _, status = os.waitpid(child, 0)
    return message or (f"the process ended with status {status}" if status else None)


def main() -> None:
    """Print the error of each failing probe as JSON, by name; arguments select probes."""
    for name in [name for name in os.environ if name.startswith("TORCHX")]:
        del os.environ[name]
    import torchx.specs  # noqa: F401 - the probes' processes inherit it

    outcomes = {
        name: outcome(probe.function)
        for name, probe in PROBES.items()
        if not sys.argv[1:] or name in sys.argv[1:]
    }
    print(json.dumps({name: error for name, error in outcomes.items() if error}, indent=1))
