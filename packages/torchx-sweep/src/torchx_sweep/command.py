"""The command ``torchx sweep`` and its sub-commands."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, TypeVar

import click

from torchx_cli.arguments.handles import resolve_handle
from torchx_cli.arguments.options import duration_option, output_option, output_option_of
from torchx_cli.commands.submissions.compare import (
    Subject,
    app_subjects,
    comparison_options,
    write_comparison,
)
from torchx_cli.exit_codes import JOB_FAILED, TIMED_OUT, fail, print_error
from torchx_cli.launch.options import LaunchOptions, launch_options
from torchx_cli.launch.submit import RunRequest, component_errors, submit
from torchx_cli.launch.targets import FORM
from torchx_cli.output import ranking
from torchx_cli.output.printing import (
    JSON,
    TABLE,
    counted,
    csv_text,
    json_data,
    write,
    write_data,
    write_result,
    write_rows,
    write_table,
)
from torchx_cli.runner_context import open_runner
from torchx_runner.config import api as config
from torchx_runner.config.api import get_configured_trackers
from torchx_runner.default_tracker import job_variables
from torchx_runner.submissions.journal import find_submission, record_group
from torchx_specs.formats import serialize
from torchx_specs.model.status import AppState
from torchx_sweep import api
from torchx_sweep.arguments import ZIP_SEPARATOR, SweepCommand, SweepGroup
from torchx_sweep.elements import shown_parameter
from torchx_sweep.handles import SCHEME, complete_handle
from torchx_sweep.limits import parse_limits
from torchx_sweep.output.tables import (
    STATUS_COLUMNS,
    element_data,
    element_rows,
    element_subject,
    element_values,
    status_data,
    status_text,
)
from torchx_sweep.store import ElementRecord, ElementState

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

_PRUNE_SECONDS = 30 * 24 * 3600.0
_STATES = tuple(state.value for state in ElementState)


@click.group("sweep", cls=SweepGroup)
def command() -> None:
    """Run TARGET once for each set of parameters, and manage such sweeps.

    \b
    torchx sweep train.py --grid lr=1e-3,1e-4 --grid seed=0:8
    torchx sweep status HANDLE

    The first form submits a sweep ('torchx sweep run --help' lists its options) and prints its
    HANDLE, which the sub-commands accept.
    """  # noqa: D301


@click.command("sweep", cls=SweepCommand, context_settings={"allow_interspersed_args": False})
@launch_options
@click.option(
    "--grid",
    metavar="NAME=VALUES",
    multiple=True,
    help="Run all combinations of these values: a list such as lr=1e-3,1e-4, or a range of integers"
    " such as seed=0:8 (0 to 7). May be repeated.",
)
@click.option(
    "--zip",
    "zips",
    metavar="NAME=VALUES...",
    multiple=True,
    help="Change these parameters together: --zip a=1,2 b=3,4 has two sets. May be repeated.",
)
@click.option(
    "--from",
    "rows",
    metavar="FILE",
    help="Read a set of parameters from each row of FILE (.csv with a header, or .jsonl).",
)
@click.option(
    "--sample", type=int, metavar="N", help="Choose N combinations at random.  [default: all]"
)
@click.option(
    "--sample-seed", type=int, default=0, metavar="N", help="Seed of --sample.  [default: 0]"
)
@click.option(
    "--max-parallel",
    type=int,
    metavar="N",
    help=f"Run at most N elements at the same time.  [default: {api.DEFAULT_PARALLEL}]",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=N,...",
    multiple=True,
    help="Limit the sum of cpus, gpus and memMB of running elements.  [default: the resources of"
    " this machine if the elements run here, else no limit]",
)
@click.option(
    "--retries",
    type=int,
    default=0,
    metavar="N",
    help="Submit a failed element again, at most N times.  [default: 0]",
)
@click.option(
    "--after",
    metavar="HANDLE[:OUTCOME]",
    help="Submit no element before this app or sweep has ended with OUTCOME: ok, any or failed."
    " With another outcome, the sweep is cancelled.  [default OUTCOME: ok]",
)
@click.option("--yes", is_flag=True, help="Submit more than 100,000 elements.")
@click.option("--dryrun", is_flag=True, help="Check and show the elements without submitting them.")
@click.option("--wait", is_flag=True, help="Wait until all elements have ended.")
@output_option
@click.argument("target")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(
    ctx: click.Context,
    /,
    launch: LaunchOptions,
    grid: tuple[str, ...],
    zips: tuple[str, ...],
    rows: str | None,
    sample: int | None,
    sample_seed: int,
    max_parallel: int | None,
    limits: tuple[str, ...],
    retries: int,
    after: str | None,
    yes: bool,
    dryrun: bool,
    wait: bool,
    output_format: str,
    target: str,
    arguments: tuple[str, ...],
) -> None:
    """Run TARGET with ARGUMENTS once for each set of parameters.

    TARGET is a component, a script, a module (-m PACKAGE.MODULE) or a command after '--', as for
    'torchx run'. The parameters are those of the component. A script, module or command gets them
    as options (--lr 1e-3), or where its ARGUMENTS, --name or --env have {lr}.

    The options of this command go before TARGET, or after its ARGUMENTS from the first --grid,
    --zip, --from, --sample or --max-parallel on. All elements are checked before the first one is
    submitted. A background process submits them; it continues after this command has ended.
    """
    with open_runner(config.load_sections("component")) as runner:
        chosen = launch.target(ctx.meta[FORM], (target, *arguments))
        scheduler, cfg = launch.read_scheduler(runner)
        untracked = {} if get_configured_trackers() else job_variables(scheduler)
        # Components and builders may print, but standard output must contain only the handle.
        with component_errors(chosen.component), redirect_stdout(sys.stderr):
            plan = api.plan(
                runner,
                chosen.component,
                chosen.arguments,
                scheduler,
                cfg,
                workspace=launch.workspace_of(chosen.component),
                grid=grid,
                zips=[group.split(ZIP_SEPARATOR) for group in zips],
                rows=rows,
                sample=sample,
                seed=sample_seed,
                max_parallel=max_parallel,
                retries=retries,
                limits=parse_limits(limits),
                after=after,
                confirmed=yes,
                program=chosen.program,
                name=launch.name or chosen.name,
                env={**untracked, **launch.env},
            )
            handle = None if dryrun else api.submit(runner, plan)
        if handle is not None:
            record_group(handle, plan.record.component, chosen.arguments, scheduler, cfg)
    if handle is None:
        _write_plan(plan, output_format)
        return
    if output_format == TABLE:
        write(handle)
        sys.stdout.flush()
    if wait:
        status = api.wait(handle)
        if output_format != TABLE:
            write_data(status_data(status), output_format)
        else:
            print(status_text(status), file=sys.stderr)
        _fail_unless_succeeded(status)
    elif output_format != TABLE:
        write_data({"handle": handle, "elements": len(plan.apps)}, output_format)


def _write_plan(plan: api.SweepPlan, output_format: str) -> None:
    sets = [parameters.values for parameters in plan.parameter_sets]
    if output_format != TABLE:
        write_data({"elements": json_data(sets), "scheduler": plan.record.scheduler}, output_format)
        return
    names = list(dict.fromkeys(name for values in sets for name in values))
    rows = [
        [str(number), *(shown_parameter(n, values[n]) if n in values else "" for n in names)]
        for number, values in enumerate(sets)
    ]
    write_table(["element", *names], rows)


def _handle_argument(function: F) -> F:
    def complete(ctx: click.Context, param: click.Parameter, value: str) -> str:
        handle = complete_handle(value)
        if handle != value:
            logger.info("%s is %s", value, handle)
        return handle

    return click.argument("handle", metavar="HANDLE", callback=complete)(function)


@command.command("list")
@output_option
def list_sweeps(output_format: str) -> None:
    """List all sweeps, the newest first."""
    write_rows(STATUS_COLUMNS, api.statuses(), output_format)


@command.command("status")
@output_option
@_handle_argument
def status(handle: str, output_format: str) -> None:
    """Show how many elements of the sweep HANDLE are in each state, and the first failures."""
    found = api.status(handle)
    write_result(status_data(found), status_text(found), output_format)


@command.command("wait")
@duration_option("--timeout", help="Give up after this time, such as 90s or 2h.  [default: never]")
@output_option
@_handle_argument
def wait(handle: str, timeout: float | None, output_format: str) -> None:
    r"""Wait until all elements of the sweep HANDLE have ended.

    \b
    Exit codes: 0 if all succeeded; 1 if one failed or was cancelled; 124 after --timeout.
    """
    timed_out = None
    try:
        found = api.wait(handle, timeout)
    except api.SweepTimeoutError as e:
        found, timed_out = e.status, e
    write_result(status_data(found), status_text(found), output_format)
    if timed_out is not None:
        print_error(str(timed_out))
        fail(TIMED_OUT)
    _fail_unless_succeeded(found)


def _fail_unless_succeeded(status: api.SweepStatus) -> None:
    if status.state is not AppState.SUCCEEDED:
        fail(JOB_FAILED)


@command.command("log")
@click.option(
    "--element", "numbers", type=int, multiple=True, metavar="N", help="Show only this element."
)
@click.option("--failed", is_flag=True, help="Show only elements that failed.")
@_handle_argument
def log(handle: str, numbers: tuple[int, ...], failed: bool) -> None:
    """Show the logs of the elements of the sweep HANDLE, each line with its element's number."""
    states = [ElementState.FAILED] if failed else []
    with open_runner() as runner:
        for number, line in api.log_lines(handle, runner, numbers, states):
            write(f"{number}: {line}")


@command.command("cancel")
@_handle_argument
def cancel(handle: str) -> None:
    """Cancel the elements of the sweep HANDLE that have not ended."""
    api.cancel(handle)


@command.command("delete")
@_handle_argument
def delete(handle: str) -> None:
    """Cancel the sweep HANDLE, and delete its record and the apps of its elements."""
    with open_runner() as runner:
        api.delete(handle, runner)


@command.command("prune")
@duration_option(
    "--older-than", help="Delete sweeps that ended longer ago, such as 12h.  [default: 30d]"
)
@click.option("--dryrun", is_flag=True, help="Show the sweeps without deleting them.")
def prune(older_than: float | None, dryrun: bool) -> None:
    """Delete the records and apps of sweeps that ended long ago, and show their handles."""
    with open_runner() as runner:
        for handle in api.prunable(_PRUNE_SECONDS if older_than is None else older_than):
            if not dryrun:
                api.delete(handle, runner)
            write(handle)


@command.command("rerun")
@click.option("--failed", is_flag=True, help="Submit only failed elements.")
@click.option(
    "--best",
    metavar="NAME[:WHICH]",
    help="Instead, run the app of the element with the smallest value of NAME again, or with the"
    " largest one: WHICH is min or max.  [default WHICH: min]",
)
@_handle_argument
def rerun(handle: str, failed: bool, best: str | None) -> None:
    """Submit the failed and cancelled elements of the sweep HANDLE again.

    With --best, one app is submitted, and the result is its handle.
    """
    if best:
        _run_best(handle, best)
        return
    states = [ElementState.FAILED] if failed else [ElementState.FAILED, ElementState.CANCELLED]
    count = api.rerun(handle, states)
    write(f"{counted(count, 'element')} queued")


def _run_best(handle: str, text: str) -> None:
    """Submit the app of the best element, as ``torchx run`` submits it."""
    name, largest = ranking.split_order(text, ("min", "max"))
    elements = api.results(handle)
    metrics = api.metrics(elements)
    chosen = ranking.best(elements, element_values(elements, metrics), name, largest=largest)
    record, [element] = api.recorded(handle, limit=1, first=chosen.number, with_apps=True)
    shown = ", ".join(f"{key}={shown_parameter(key, v)}" for key, v in chosen.parameters.items())
    logger.info("element %d is the best: %s", chosen.number, shown)
    cfg = {key: value for key, value in record.cfg.items() if key != "detach"}
    with open_runner() as runner:
        request = RunRequest(
            record.component,
            [],
            record.scheduler,
            cfg,
            None,
            None,
            dryrun=False,
            wait=False,
            log=False,
            detach=False,
            output_format=TABLE,
            app=serialize.from_json(element.app),
        )
        submit(runner, request, no_wait=False)


@command.command("results")
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES, case_sensitive=False),
    multiple=True,
    help="Show only elements in this state. May be repeated.",
)
@output_option_of(TABLE, "csv", JSON)
@click.option(
    "--metrics/--no-metrics",
    "with_metrics",
    default=True,
    help="Show the metadata and metrics that the elements have recorded in the configured"
    " trackers.  [default: --metrics]",
)
@click.option(
    "--sort",
    metavar="NAME[:ORDER]",
    help="Sort by this parameter or metric, or by duration; ORDER is asc or desc.  [default: by"
    " element, and asc]",
)
@click.option(
    "--best",
    metavar="NAME[:WHICH]",
    help="Show only the element with the smallest value of NAME, or with the largest one: WHICH is"
    " min or max.  [default WHICH: min]",
)
@_handle_argument
def results(
    handle: str,
    states: tuple[str, ...],
    output_format: str,
    with_metrics: bool,
    sort: str | None,
    best: str | None,
) -> None:
    """Show the parameters, state, duration and metrics of each element of the sweep HANDLE."""
    elements: list[ElementRecord] = api.results(handle, [ElementState(state) for state in states])
    metrics = api.metrics(elements) if with_metrics else {}
    values = element_values(elements, metrics)
    if best:
        name, largest = ranking.split_order(best, ("min", "max"))
        elements = [ranking.best(elements, values, name, largest=largest)]
    elif sort:
        name, descending = ranking.split_order(sort, ("asc", "desc"))
        ranking.check_column("--sort", name, values)
        elements = ranking.ranked(elements, values, name, descending=descending)
    if output_format == JSON:
        parameters = ranking.with_numbers([element.parameters for element in elements])
        data = [
            {
                **element_data(element),
                "parameters": json_data(own),
                "metrics": json_data(metrics.get(element.number, {})),
            }
            for element, own in zip(elements, parameters, strict=True)
        ]
        write_data(data, JSON)
        return
    headers, rows = element_rows(elements, metrics)
    if output_format == TABLE:
        write_table(headers, rows)
        return
    sys.stdout.write(csv_text(headers, rows))


@command.command("compare")
@comparison_options
@click.argument("handles", metavar="HANDLE...", nargs=-1, required=True)
def compare(
    handles: tuple[str, ...], show_all: bool, with_metrics: bool, output_format: str
) -> None:
    """Show what differs between the elements of sweeps and other apps, and what they recorded."""
    chosen = [
        handle if _is_sweep(handle) else resolve_handle(handle)
        for handle in map(complete_handle, handles)
    ]
    apps = {one.handle: one for one in app_subjects(h for h in chosen if not _is_sweep(h))}
    subjects: list[Subject] = []
    for handle in dict.fromkeys(chosen):
        subjects += [apps[handle]] if handle in apps else _element_subjects(handle)
    write_comparison(subjects, show_all, with_metrics, output_format)


def _is_sweep(handle: str) -> bool:
    return handle.startswith(f"{SCHEME}://")


def _element_subjects(handle: str) -> list[Subject]:
    """Return the submitted elements of a sweep; the others are left out with a line."""
    record, elements = api.recorded(handle, with_apps=True)
    entry = find_submission(handle)
    arguments = entry.arguments if entry else ()
    submitted = [element for element in elements if element.handle]
    if missing := len(elements) - len(submitted):
        logger.info("%s: %d elements are not submitted yet", handle, missing)
    return [element_subject(record, element, arguments) for element in submitted]


command.add_command(run, "run")
