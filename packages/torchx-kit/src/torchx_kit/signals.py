"""Meanings of exit codes, and names of signals."""

from __future__ import annotations

import signal

#: Exit codes of a shell above this number report a signal.
SHELL_SIGNAL_BASE = 128
_NAMES = {int(number): number.name for number in signal.Signals}
_LARGEST = 64


def signal_name(number: int) -> str:
    """Return the name of a signal, or an empty string if the system has none of that number.

    >>> signal_name(9)
    'SIGKILL'
    """
    return _NAMES.get(number, "")


def exit_signal(exit_code: int) -> int:
    """Return the number of the signal that ended a process, or 0 if it exited by itself.

    Args:
        exit_code: Either negative for a signal, as :mod:`subprocess` reports it, or above 128, as a
            shell or a container reports it.

    >>> exit_signal(-9), exit_signal(137), exit_signal(1)
    (9, 9, 0)
    """
    if exit_code < 0:
        return -exit_code
    number = exit_code - SHELL_SIGNAL_BASE
    return number if 0 < number <= _LARGEST else 0


def process_exit_code(exit_code: int) -> int:
    """Return a shell's exit code as :mod:`subprocess` would report it.

    >>> process_exit_code(137), process_exit_code(2)
    (-9, 2)
    """
    number = exit_signal(exit_code)
    return -number if number else exit_code


def describe_exit(exit_code: int) -> str:
    """Return how a process ended, in words; an empty string for success.

    Args:
        exit_code: As for :func:`exit_signal`.

    >>> describe_exit(2), describe_exit(-9), describe_exit(143), describe_exit(0)
    ('exit code 2', 'killed by signal 9 (SIGKILL)', 'exit code 143 (SIGTERM)', '')
    """
    if exit_code == 0:
        return ""
    number = exit_signal(exit_code)
    name = f" ({signal_name(number)})" if signal_name(number) else ""
    if exit_code < 0:
        return f"killed by signal {number}{name}"
    return f"exit code {exit_code}{name}"
