"""Results of checks for ``torchx doctor``, and the check of a batch system's commands."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator

from torchx_specs.errors import one_line
from torchx_specs.plugins.check_results import CheckResult

#: How long ``torchx doctor`` waits for all checks on an idle machine, in seconds.
CHECK_SECONDS = 5.0


def on_this_machine(seconds: float) -> float:
    """Return a time limit, longer if more processes are ready to run than there are CPUs.

    Args:
        seconds: The time limit on an idle machine, in seconds.
    """
    try:
        load = os.getloadavg()[0]
    except OSError:  # without /proc
        load = 0.0
    return seconds * max(1.0, load / (os.cpu_count() or 1))


def query_seconds() -> float:
    """Return the time limit of one query of a service: less than the limit of a whole check."""
    return on_this_machine(0.9 * CHECK_SECONDS)


def ok(message: str) -> CheckResult:
    """Return the result of a check that found no problem."""
    return CheckResult("ok", one_line(message))


def warning(message: object, remedy: str) -> CheckResult:
    """Return a problem that does not prevent submissions.

    Args:
        message: The problem: an error, or a text.
        remedy: What the user can do, beginning with a verb.
    """
    return CheckResult("warning", one_line(message), remedy)


def error(message: object, remedy: str) -> CheckResult:
    """Return a problem that prevents submissions; the arguments are those of :func:`warning`."""
    return CheckResult("error", one_line(message), remedy)


def check_commands(
    system: str, names: Iterable[str], remedy: str, check: Callable[[], Iterable[CheckResult]]
) -> Iterator[CheckResult]:
    """Check that commands of a batch system are on ``PATH``, and then run another check.

    If a command is missing, yield one error, and do not run the other check.

    Args:
        system: Name of the batch system.
        names: The commands.
        remedy: What the user can do if a command is missing.
        check: The other check, which may run the commands.
    """
    names = list(names)
    missing = [name for name in names if shutil.which(name) is None]
    if missing == names:
        yield error(f"{system} is not installed: {', '.join(names)} are not on PATH", remedy)
    elif missing:
        yield error(f"commands of {system} are not on PATH: {', '.join(missing)}", remedy)
    else:
        yield from check()


def describe_missing(kind: str, name: str, known: Iterable[str], option: str) -> CheckResult:
    """Return the error that a queue, partition or similar object does not exist.

    Args:
        kind: The kind of the object.
        name: The name in the configuration.
        known: The names of the objects that exist.
        option: The scheduler option that ``name`` is the value of.
    """
    have = sorted(known)
    return error(
        f"there is no {kind} '{name}'; {kind}s: {', '.join(have) or 'none'}",
        f"set the option {option} to one of these in .torchxconfig",
    )
