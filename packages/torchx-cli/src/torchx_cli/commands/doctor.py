"""The command ``torchx doctor``: runs the checks at the same time, with a time limit."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import click

from torchx_cli.arguments.options import (
    Command,
    duration_option,
    output_option,
    scheduler_option,
)
from torchx_cli.arguments.scheduler_choice import DEFAULT_SCHEDULER, used_schedulers
from torchx_cli.doctor.own_checks import check_host, check_scheduler
from torchx_cli.exit_codes import BACKEND_FAILED, BAD_REQUEST, fail
from torchx_cli.main import usable_manager
from torchx_cli.output.colors import paint
from torchx_cli.output.printing import counted, write_result
from torchx_cli.output.terminal import escape_controls
from torchx_kit.checks import CHECK_SECONDS, on_this_machine
from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import (
    InstalledSchedulers,
    split_host,
    unknown_scheduler,
)
from torchx_specs.errors import ConfigError, TorchXError, one_line
from torchx_specs.plugins.check_results import CheckResult
from torchx_specs.plugins.records import CheckPlugin
from torchx_specs.redaction import masked_text

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.manager import PluginManager

#: The subject of the checks that concern this installation, not a scheduler.
INSTALLATION = "torchx"

OK = "ok"
WARNING = "warning"
ERROR = "error"
_LEVELS = (OK, WARNING, ERROR)

_COLORS = {OK: "GREEN", WARNING: "ORANGE", ERROR: "RED"}


class Outcome(NamedTuple):
    """One line of the report.

    Attributes:
        subject: The checked part, such as a scheduler.
        check: Name of the check.
        level: ``ok``, ``warning`` or ``error``.
        message: The result, on one line.
        remedy: What the user can do; empty if there is nothing to do.
    """

    subject: str
    check: str
    level: str
    message: str
    remedy: str


def subject_of(record: CheckPlugin) -> str:
    """Return the subject of a check: its name up to the first ``:``."""
    return record.name.partition(":")[0]


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
@scheduler_option("Check this scheduler only.  [default: all installed schedulers]")
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
    outcomes = run_checks(manager, scheduler, timeout)
    unused = set(subjects) - _used() if scheduler is None else set()
    outcomes = [
        outcome._replace(level=WARNING)
        if outcome.subject in unused and outcome.level == ERROR
        else outcome
        for outcome in outcomes
    ]
    data = [{**outcome._asdict(), "remedy": outcome.remedy or None} for outcome in outcomes]
    write_result(data, _text(outcomes, unused), output_format)
    failed = {outcome.subject for outcome in outcomes if outcome.level == ERROR}
    if failed:
        fail(BACKEND_FAILED if failed & set(installed) else BAD_REQUEST)


def _used() -> set[str]:
    try:
        return {DEFAULT_SCHEDULER, *(split_host(name)[0] for name in used_schedulers())}
    except ConfigError:  # a check reports this error
        return {DEFAULT_SCHEDULER}


def _text(outcomes: list[Outcome], unused: set[str]) -> str:
    lines = []
    for subject, found in groupby(outcomes, attrgetter("subject")):
        lines.append(escape_controls(subject + (" (not in use)" if subject in unused else "")))
        for outcome in found:
            level = paint(f"{outcome.level:<7}", _COLORS[outcome.level], sys.stdout)
            lines.append(f"  {level}  {escape_controls(outcome.message)}")
            if outcome.remedy:
                lines.append(f"           {escape_controls(f'remedy: {outcome.remedy}')}")
    levels = [outcome.level for outcome in outcomes]
    counts = [counted(levels.count(level), level) for level in (ERROR, WARNING)]
    return "\n".join([*lines, ", ".join(counts)])


# -- running the checks


def run_checks(
    manager: PluginManager, scheduler: str | None = None, timeout: float | None = None
) -> list[Outcome]:
    """Run the checks of the installation and of schedulers, each in a thread.

    A check that raises an exception, or does not end in time, adds one error; its results up to
    then are kept.

    Args:
        manager: Has the checks and the schedulers.
        scheduler: The only scheduler to check; None means all, and the checks of other subjects.
        timeout: How long all checks together may wait, in seconds (default: 5, longer on a busy
            machine). The time in which this process computes, such as the import of a library, does
            not count.
    """
    if timeout is None:
        timeout = on_this_machine(CHECK_SECONDS)
    running = []
    for record in _checks_of(manager, scheduler):
        outcomes: list[Outcome] = []
        # A daemon: a check that hangs must not keep the process from ending.
        thread = threading.Thread(target=_run, args=(record, outcomes), daemon=True)
        thread.start()
        running.append((record, thread, outcomes))
    end = _waited() + timeout
    for record, thread, outcomes in running:
        while thread.is_alive() and (left := end - _waited()) > 0:
            thread.join(left)
        if thread.is_alive():
            outcomes.append(_too_late(record, timeout))
    return [outcome for _, _, outcomes in running for outcome in list(outcomes)]


def _waited() -> float:
    """Return how long this process has waited: the elapsed time minus the CPU time."""
    return time.monotonic() - time.process_time()


def _run(record: CheckPlugin, outcomes: list[Outcome]) -> None:
    """Run one check, and add its results to ``outcomes``."""
    try:
        for result in record.load()(configured_options(subject_of(record))) or ():
            outcomes.append(_checked(record, result))  # noqa: PERF401 - kept if the next one hangs
    except BaseException as e:
        # This includes SystemExit, and the BaseException that a panic in a Rust library raises.
        outcomes.append(_broken(record, f"{type(e).__name__}: {one_line(e)}"))


def _too_late(record: CheckPlugin, timeout: float) -> Outcome:
    problem = f"the check '{record.name}' did not end within {timeout:.3g} s"
    if subject_of(record) == INSTALLATION:
        # The checks of the installation only compute: it is the machine that is slow.
        return _outcome(record, WARNING, problem, "give a longer --timeout")
    remedy = "give a longer --timeout; check the network and the address of the service"
    return _outcome(record, ERROR, problem, remedy)


def _checked(record: CheckPlugin, result: object) -> Outcome:
    if not isinstance(result, CheckResult) or result.level not in _LEVELS:
        return _broken(record, f"it yielded {result!r:.100}, which is not a valid CheckResult")
    return _outcome(record, *result)


def _broken(record: CheckPlugin, problem: str) -> Outcome:
    message = f"the check '{record.name}' of {record.origin} failed: {problem}"
    return _outcome(record, ERROR, message, f"report this to the authors of {record.origin}")


def _outcome(record: CheckPlugin, level: str, message: object, remedy: object) -> Outcome:
    subject, _, check = record.name.partition(":")
    return Outcome(
        subject, check, level, masked_text(one_line(message)), masked_text(str(remedy).strip())
    )


def _checks_of(manager: PluginManager, scheduler: str | None) -> list[CheckPlugin]:
    """Return the checks that :func:`run_checks` runs."""
    catalog = manager.checks()
    all_schedulers = manager.schedulers().names()
    records = [catalog[name] for name in catalog]
    chosen = [record for record in records if subject_of(record) == INSTALLATION]
    for name in all_schedulers if scheduler is None else [scheduler]:
        if config.HOST_DELIM in (hosted := _with_host(name)):
            # The scheduler's own checks are those of a cluster of this machine.
            chosen.append(CheckPlugin(f"{name}:host", partial(check_host, hosted)))
            continue
        own = [record for record in records if subject_of(record) == name]
        loads = CheckPlugin(f"{name}:scheduler", partial(check_scheduler, name, bool(own)))
        chosen += [loads, *own]
    if scheduler is None:
        known = {INSTALLATION, *all_schedulers}
        chosen += [record for record in records if subject_of(record) not in known]
    return chosen


def _with_host(name: str) -> str:
    try:
        return config.with_host(name)
    except ConfigError:  # check_configuration reports the error
        return name


def configured_options(subject: str) -> Mapping[str, CfgVal]:
    """Return the options that ``.torchxconfig`` sets for a scheduler; none for another subject."""
    cfg: dict[str, CfgVal] = {}
    try:
        if subject in InstalledSchedulers():
            config.apply(subject, cfg, on_unknown=lambda message: None)
    except TorchXError:  # the checks of the configuration and the scheduler report this error
        cfg.clear()
    return cfg
