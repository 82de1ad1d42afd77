"""The command ``torchx wait``."""

from __future__ import annotations

import click

from torchx_cli.arguments.options import Command, duration_option, handle_argument, output_option
from torchx_cli.exit_codes import JOB_FAILED, TIMED_OUT, fail, print_error
from torchx_cli.launch.reports import StateChanges, log_end, say_what_continues, show_failure
from torchx_cli.logs.error_lines import program_error
from torchx_cli.output.printing import TABLE, state_name, write_result
from torchx_cli.output.status_text import status_data
from torchx_cli.runner_context import existing, open_runner
from torchx_runner import WaitTimeoutError
from torchx_specs.model.status import AppState, is_terminal

_STATES = ("SUBMITTED", "PENDING", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED")


@click.command("wait", cls=Command)
@click.option(
    "--until",
    type=click.Choice(_STATES, case_sensitive=False),
    metavar="STATE",
    help=f"Wait until this state is reached ({', '.join(_STATES)}).  [default: the end of the app]",
)
@duration_option(
    "--timeout", help="Give up after this time, such as 90, 90s, 10m or 2h.  [default: never]"
)
@output_option
@handle_argument
def command(app_handle: str, until: str | None, timeout: float | None, output_format: str) -> None:
    """Wait until the app HANDLE has ended, and print its state.

    While the app waits or restarts, its state and the reason are logged on standard error. If the
    app fails, the end of the log of its first failed replica follows.

    \b
    Exit codes: 0 if the app succeeded, or reached the state of --until;
    1 if it failed, was cancelled or does not exist; 124 after --timeout.
    """
    goal = AppState.SUCCEEDED if until is None else AppState[until.upper()]
    timed_out = False
    with open_runner() as runner:
        try:
            found = runner.wait(
                app_handle,
                timeout=timeout,
                until=None if is_terminal(goal) else goal,
                observe=StateChanges(shows_first_run=True).observe,
            )
        except WaitTimeoutError as e:
            found, timed_out = e.status, True
        except KeyboardInterrupt:
            say_what_continues(app_handle)
            raise
        status = existing(found, app_handle)
        if status.state in (AppState.FAILED, AppState.CANCELLED) and output_format == TABLE:
            log_end(status)
            show_failure(runner, app_handle, status)
        error = "" if output_format == TABLE else program_error(runner, app_handle, status)
    data = status_data(app_handle, status, error=error)
    write_result(data, state_name(status.state), output_format)
    if timed_out:
        print_error(f"{app_handle} is {state_name(status.state)} after {timeout:g} seconds")
        fail(TIMED_OUT)
    # The wait has ended at the goal, at a later state, or at the end of the app.
    has_failed = is_terminal(status.state) and status.state != AppState.SUCCEEDED
    if status.state != goal and (has_failed or is_terminal(goal)):
        fail(JOB_FAILED)
