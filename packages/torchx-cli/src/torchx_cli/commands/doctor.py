"""The command ``torchx doctor``."""

from __future__ import annotations

import sys

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import any_scheduler_option, output_option
from torchx_cli.arguments.scheduler_choice import DEFAULT_SCHEDULER, used_schedulers
from torchx_cli.doctor.run_checks import (
    ERROR,
    OK,
    WARNING,
    Outcome,
    checks_of,
    configured_options,
    run_checks,
)
from torchx_cli.exit_codes import BACKEND_FAILED, BAD_REQUEST, fail
from torchx_cli.group import usable_manager
from torchx_cli.output.colors import paint
from torchx_cli.output.printing import TABLE, write, write_data
from torchx_cli.output.terminal_safety import escape_controls
from torchx_cli.output.times import duration_option
from torchx_runner.installed_schedulers import (
    InstalledSchedulers,
    split_host,
    unknown_scheduler,
)
from torchx_specs.errors import ConfigError

_COLORS = {OK: "GREEN", WARNING: "ORANGE", ERROR: "RED"}


class _Command(Command):
    """A command that runs without configured defaults if a configuration file is malformed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, [*args])
        except ConfigError:
            ctx.default_map = None
            ctx.params.clear()
            return click.Command.parse_args(self, ctx, args)


@click.command("doctor", cls=_Command)
@any_scheduler_option("Check this scheduler only.  [default: all installed schedulers]")
@duration_option(
    "--timeout",
    help="Wait this long for the checks.  [default: 5s, longer on a busy machine]",
)
@output_option
def command(scheduler: str | None, timeout: float | None, output_format: str) -> None:
    """Check this installation, the configuration and the schedulers.

    Each problem has a remedy. Without -s, all installed schedulers are checked; an error of a
    scheduler that is not in use here is shown as a warning. A scheduler is in use if it is the
    default, if a configuration file has a section for it, or if you submitted a job to it. The exit
    code is 2 for errors of the installation or the configuration, and 3 for errors of schedulers.
    """
    manager = usable_manager()
    installed = list(manager.schedulers().names())
    if scheduler is not None and scheduler not in installed:
        raise unknown_scheduler(scheduler, InstalledSchedulers())
    subjects = installed if scheduler is None else [scheduler]
    outcomes = run_checks(checks_of(manager, subjects, scheduler), configured_options, timeout)
    unused = set(subjects) - _used() if scheduler is None else set()
    outcomes = [
        outcome._replace(level=WARNING)
        if outcome.subject in unused and outcome.level == ERROR
        else outcome
        for outcome in outcomes
    ]
    if output_format == TABLE:
        _print(outcomes, unused)
    else:
        write_data([_data(outcome) for outcome in outcomes], output_format)
    failed = {outcome.subject for outcome in outcomes if outcome.level == ERROR}
    if failed:
        fail(BACKEND_FAILED if failed & set(installed) else BAD_REQUEST)


def _used() -> set[str]:
    try:
        return {DEFAULT_SCHEDULER, *(split_host(name)[0] for name in used_schedulers())}
    except ConfigError:  # a check reports this error
        return {DEFAULT_SCHEDULER}


def _print(outcomes: list[Outcome], unused: set[str]) -> None:
    subject = ""
    for outcome in outcomes:
        if outcome.subject != subject:
            subject = outcome.subject
            write(escape_controls(subject + (" (not in use)" if subject in unused else "")))
        level = paint(f"{outcome.level:<7}", _COLORS[outcome.level], sys.stdout)
        write(f"  {level}  {escape_controls(outcome.message)}")
        if outcome.remedy:
            write(f"           {escape_controls(f'remedy: {outcome.remedy}')}")
    levels = [outcome.level for outcome in outcomes]
    counts = [_count(levels.count(level), level) for level in (ERROR, WARNING)]
    write(f"{counts[0]}, {counts[1]}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _data(outcome: Outcome) -> dict[str, str | None]:
    return {**outcome._asdict(), "remedy": outcome.remedy or None}
