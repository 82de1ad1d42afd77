"""Finds the line in which a program says why it failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchx_cli.output.status_text import first_failure
from torchx_specs.errors import one_line
from torchx_specs.model.status import AppState, AppStatus
from torchx_specs.redaction import masked_text
from torchx_specs.schedulers.api import Stream

if TYPE_CHECKING:
    from torchx_runner import Runner

#: How many lines of the first failed replica's log are read.
LAST_LINES = 20
_LONGEST = 300
# The last line of a traceback of Python, and what other programs print.
_ERROR = re.compile(
    r"(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)(?::.*)?\Z"
    r"|(?:\S+: )?(?i:fatal(?: error)?|error): .*"
    r"|Segmentation fault.*|terminate called after .*|Killed\Z"
)


def error_line(lines: Sequence[str]) -> str:
    """Return the last line that names an error, masked; an empty string if there is none.

    >>> error_line(["Traceback (most recent call last):", "RuntimeError: CUDA out of memory"])
    'RuntimeError: CUDA out of memory'
    """
    for line in reversed(lines):
        text = one_line(line)
        if _ERROR.match(text):
            return masked_text(text[:_LONGEST])
    return ""


def last_lines(
    runner: Runner, app_handle: str, replica: tuple[str, int]
) -> tuple[str, list[str], Exception | None]:
    """Return the end of a replica's standard error, or of its log if standard error is empty.

    Args:
        runner: The runner that knows the app.
        app_handle: The app.
        replica: The role and the index of the replica.

    Returns:
        The name of the stream, its last lines, and why they cannot be read.
    """
    problem: Exception | None = None
    for streams, name in ((Stream.STDERR, "standard error"), (None, "log")):
        held: list[str] = []
        try:
            for _, block in runner.log_blocks(
                app_handle, [replica], streams=streams, last=LAST_LINES
            ):
                if isinstance(block, Exception):
                    raise block
                held += block
        except Exception as e:  # continue, even without a log
            problem = e
            continue
        problem = None
        if held:
            return name, held[-LAST_LINES:], None
    return "log", [], problem


def program_error(runner: Runner, app_handle: str, status: AppStatus) -> str:
    """Return the line in which the program of the first failed replica names its error.

    It is often empty, and always if the app has not failed or the scheduler has a message.

    Args:
        runner: The runner that knows the app.
        app_handle: The app.
        status: The status of the app.
    """
    failure = first_failure(status) if status.state == AppState.FAILED else None
    if failure is None or failure.message:
        return ""
    replica = (failure.replica.role, failure.replica.id)
    return error_line(last_lines(runner, app_handle, replica)[1])
