"""Bash code that runs the lines of a scheduler's option ``setup`` before the program."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_specs.errors import RequestError


def check_setup(lines: Iterable[str]) -> None:
    """Raise RequestError if a line of the option ``setup`` cannot be part of a script."""
    for line in lines:
        if re.search(r"[\0\r]", line):
            raise RequestError(f"option setup: {line!r} contains a NUL or a carriage return")


def render_setup(lines: Iterable[str]) -> str:
    """Return a shell function that runs these lines and then its arguments as a command.

    The result is empty if there are no lines.

    :data:`~torchx_kit.scripts.job_script.RUN_REPLICA` calls it in the shell that becomes the
    program. If a line fails, this shell ends with the line's exit code, and the line is written to
    the job's record (:meth:`torchx_kit.jobs.records.JobRecord.describe_end`).

    Raises:
        RequestError: A line contains a NUL or a carriage return.
    """
    lines = list(lines)
    check_setup(lines)
    return _SETUP.format(lines="\n".join(lines)) if lines else ""


def setup_command(lines: Iterable[str], command: list[str], shell: str) -> list[str]:
    """Return a command that runs these lines in a shell, which then becomes another command.

    If a line fails, the shell ends with the line's exit code.

    Args:
        lines: The lines; without lines, the result is ``command``.
        command: A program and its arguments.
        shell: The shell, such as ``bash`` or ``sh``.

    Raises:
        RequestError: A line contains a NUL or a carriage return.
    """
    lines = list(lines)
    check_setup(lines)
    if not lines:
        return command
    return [shell, "-c", _COMMAND.format(lines="\n".join(lines)), "setup", *command]


# A function, because the lines may source files, which would get the arguments of the shell.
_COMMAND = """tx_setup() {{
:
{lines}
}}
tx_setup_failed() {{
    tx_code=$?
    [ "$tx_code" -ne 0 ] || tx_code=1 # a line has called exit, so the program does not run
    echo "setup failed with exit code $tx_code" >&2
    exit "$tx_code"
}}
trap tx_setup_failed EXIT
set -e
tx_setup
set +e
trap - EXIT
exec "$@"
"""

# A signal that ends the shell must not count as a failed line, so each trap for a signal sends the
# signal again, with the default effect. The lines are not indented, because they may have here
# documents.
_SETUP = """
# Runs the lines of the option setup, and then the command $@. If a line fails, ends this shell with
# the exit code of the line.
tx_setup=tx_run_setup
tx_run_setup() {{
    tx_command=("$@") tx_line=
    set -- # the lines may source files, which would get these arguments
    rm -f "$tx_record/setup-$tx_role-$tx_replica"
    for tx_signal in HUP INT TERM USR1 USR2 XCPU; do
        trap "trap - ERR EXIT $tx_signal; kill -$tx_signal \\$BASHPID" "$tx_signal"
    done
    trap 'tx_line=$BASH_COMMAND' ERR
    trap 'tx_setup_failed "$?" "${{tx_line:-$BASH_COMMAND}}"' EXIT
    set -e
{lines}
    set +e
    trap - ERR EXIT HUP INT TERM USR1 USR2 XCPU
    "${{tx_command[@]}}"
}}
tx_setup_failed() {{
    trap - ERR EXIT
    set +e
    tx_code=$1
    [ "$tx_code" -ne 0 ] || tx_code=1 # a line has called exit, so the program does not run
    echo "setup failed with exit code $tx_code at: $2" >&2
    printf '%s\\n' "$2" > "$tx_record/setup-$tx_role-$tx_replica"
    exit "$tx_code"
}}
"""
