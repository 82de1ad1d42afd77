"""The command ``torchx doctor``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import any_scheduler_option, output_option
from torchx_cli.arguments.scheduler_choice import DEFAULT_SCHEDULER
from torchx_cli.doctor.own_checks import check_scheduler
from torchx_cli.doctor.run_checks import (
    DEFAULT_TIMEOUT,
    ERROR,
    OK,
    WARNING,
    Outcome,
    run_checks,
    subject_of,
)
from torchx_cli.exit_codes import BACKEND_FAILED, BAD_REQUEST, fail
from torchx_cli.output.colors import paint
from torchx_cli.output.printing import TABLE, write, write_data
from torchx_cli.output.terminal_safety import escape_controls
from torchx_cli.output.times import duration_option
from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import (
    InstalledSchedulers,
    plugin_manager,
    unknown_scheduler,
)
from torchx_specs.errors import ConfigError, TorchXError
from torchx_specs.plugins.check_results import CheckResult
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import CheckPlugin

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.manager import PluginManager

#: The subject of the checks that concern this installation, not a scheduler.
_INSTALLATION = "torchx"
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
    default=str(DEFAULT_TIMEOUT),
    help=f"Wait this long for the checks.  [default: {DEFAULT_TIMEOUT:g}s]",
)
@output_option
def command(scheduler: str | None, timeout: float, output_format: str) -> None:
    """Check this installation, the configuration and the schedulers.

    Each problem has a remedy. Without -s, all installed schedulers are checked; an error of a
    scheduler that is not in use here is shown as a warning. A scheduler is in use if it is the
    default, if a configuration file has a section for it, or if you submitted a job to it. The exit
    code is 2 for errors of the installation or the configuration, and 3 for errors of schedulers.
    """
    try:
        manager = plugin_manager()
    except ConfigError:  # a check reports this error
        manager = get_manager()
    installed = list(manager.schedulers().names())
    if scheduler is not None and scheduler not in installed:
        raise unknown_scheduler(scheduler, InstalledSchedulers())
    subjects = installed if scheduler is None else [scheduler]
    outcomes = run_checks(_records(manager, subjects, scheduler), _options, timeout)
    unused = set(subjects) - _in_use() if scheduler is None else set()
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


def _records(manager: PluginManager, schedulers: list[str], given: str | None) -> list[CheckPlugin]:
    """Return the checks of this installation, of the schedulers, and of others if none is given."""
    catalog = manager.checks()
    all_schedulers = manager.schedulers().names()
    records = [catalog[name] for name in catalog]
    chosen = [record for record in records if subject_of(record) == _INSTALLATION]
    for name in schedulers:
        own = [record for record in records if subject_of(record) == name]
        chosen += [_loading(name, has_checks=bool(own)), *own]
    if given is None:
        known = {_INSTALLATION, *all_schedulers}
        chosen += [record for record in records if subject_of(record) not in known]
    return chosen


def _loading(name: str, has_checks: bool) -> CheckPlugin:
    """Return the check that loads a scheduler.

    Args:
        name: The scheduler.
        has_checks: Whether the scheduler has checks of its own; success is then not reported.
    """

    def check(cfg: Mapping[str, CfgVal], /) -> Iterable[CheckResult]:
        results = check_scheduler(name)
        return [result for result in results if result.level != OK or not has_checks]

    return CheckPlugin(f"{name}:scheduler", check)


def _options(subject: str) -> Mapping[str, CfgVal]:
    """Return the options that ``.torchxconfig`` sets for a scheduler; none for another subject."""
    cfg: dict[str, CfgVal] = {}
    try:
        if subject in InstalledSchedulers():
            config.apply(subject, cfg, on_unknown=lambda message: None)
    except TorchXError:  # the checks of the configuration and the scheduler report this error
        cfg.clear()
    return cfg


def _in_use() -> set[str]:
    from torchx_runner.submissions.journal import RECENT, submissions

    used = {found.scheduler for found in submissions(RECENT)} | {DEFAULT_SCHEDULER}
    try:
        used |= {value.section for value in config.list_values() if value.effective}
        used.add(config.get_cli_defaults("run").get("scheduler", DEFAULT_SCHEDULER))
    except ConfigError:  # a check reports this error
        pass
    return used


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
