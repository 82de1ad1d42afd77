"""The command ``torchx run``."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import (
    cfg_option,
    complete_components,
    output_option,
    scheduler_option,
    single_value_option,
)
from torchx_cli.arguments.scheduler_choice import choose_scheduler, read_cfg
from torchx_cli.exit_codes import JOB_FAILED, fail
from torchx_cli.launch.component_errors import component_errors
from torchx_cli.output.app_data import (
    app_dict,
    dryrun_data,
    dryrun_document,
    dryrun_text,
    is_document,
    read_document,
    warn_of_secrets,
)
from torchx_cli.output.printing import TABLE, YAML, state_name, write, write_data
from torchx_cli.output.standard_streams import read_utf8, write_utf8
from torchx_cli.output.status_data import run_data
from torchx_cli.runner_context import open_runner
from torchx_runner.config import api as config
from torchx_specs.errors import RequestError
from torchx_specs.model.constants import TORCHX_CONTEXT_NAME
from torchx_specs.model.status import AppState
from torchx_specs.workspace.spec import WorkingDirectory, Workspace

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.model.status import AppStatus
    from torchx_specs.options.run_options import CfgVal

logger = logging.getLogger(__name__)


class _Request(NamedTuple):
    """The values of the command's options and arguments, resolved and checked."""

    component: str
    arguments: list[str] | dict[str, Any]
    scheduler: str
    cfg: dict[str, CfgVal]
    workspace: Workspace | str | None
    parent_run_id: str | None
    dryrun: bool
    wait: bool
    log: bool
    detach: bool
    output_format: str


@click.command(
    "run",
    cls=Command,
    extra_keys=["component"],
    context_settings={"allow_interspersed_args": False},
)
@scheduler_option
@cfg_option
@click.option("--dryrun", is_flag=True, help="Show the request without submitting it.")
@click.option("--wait/--no-wait", help="Wait until the app has ended.")
@click.option("--log/--no-log", help="Show the app's logs, and wait until the app has ended.")
@click.option(
    "--detach",
    is_flag=True,
    help="Return at once; a local app continues in the background.",
)
@single_value_option(
    "--workspace",
    "--buck-target",
    metavar="WORKSPACE",
    help="Upload this directory into the job; '' uploads nothing."
    "  [default: the working directory]",
)
@single_value_option(
    "--parent_run_id", metavar="ID", help="Record this run as the parent run, for trackers."
)
@click.option(
    "--tee_logs",
    is_flag=True,
    help="Accepted without effect: log lines always name their replica.",
)
@click.option("--stdin", is_flag=True, help="Read the run as a JSON object from standard input.")
@output_option
@click.argument(
    "component_and_arguments",
    metavar="COMPONENT [ARGUMENTS]...",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=complete_components,
)
@click.pass_context
def command(
    ctx: click.Context,
    scheduler: str | None,
    scheduler_args: tuple[str, ...],
    dryrun: bool,
    wait: bool,
    log: bool,
    detach: bool,
    workspace: str | None,
    parent_run_id: str | None,
    tee_logs: bool,
    stdin: bool,
    output_format: str,
    component_and_arguments: tuple[str, ...],
) -> None:
    """Run COMPONENT with ARGUMENTS, or an app from a file.

    COMPONENT is a name that 'torchx builtins' lists, FILE.py:FUNCTION, PACKAGE.MODULE:FUNCTION, or
    a file that defines an app (job.yaml, job.json, or '-' for standard input). 'torchx run
    COMPONENT --help' lists the ARGUMENTS. Options of this command go before COMPONENT.

    The command returns once the app is submitted. If the app ends with this command (local_cwd and
    local_docker), it waits for the app, and shows its logs on standard error. Standard output
    contains the app's handle only.
    """
    os.environ.setdefault(TORCHX_CONTEXT_NAME, "cli_run")
    with open_runner(config.load_sections("component")) as runner:
        if stdin:
            request = _from_stdin(ctx, runner, dryrun, output_format)
        else:
            component, arguments = _split_component(component_and_arguments)
            chosen = choose_scheduler(scheduler)
            request = _Request(
                component,
                arguments,
                chosen,
                read_cfg(runner, chosen, scheduler_args),
                _workspace(workspace, component),
                parent_run_id,
                dryrun,
                wait,
                log,
                detach,
                output_format,
            )
        _run(runner, request, no_wait=_is_given(ctx, "wait") and not request.wait)


def _split_component(argv: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the component and its arguments.

    Without a component on the command line, it is the key ``component`` of ``[cli:run]``.
    """
    if (argv and not argv[0].startswith("-")) or argv[:1] == ("-",):
        return argv[0], list(argv[1:])
    component = config.get_cli_defaults("run").get("component")
    if not component:
        raise click.UsageError(
            "which component? Name one (torchx builtins lists them), or set 'component' in"
            " [cli:run] of .torchxconfig"
        )
    return component, list(argv)


def _workspace(given: str | None, component: str) -> Workspace | str | None:
    """Return the workspace; the default is the working directory, or None for a document."""
    if given is not None:
        return Workspace.from_str(given)
    return None if is_document(component) else WorkingDirectory.now()


def _from_stdin(ctx: click.Context, runner: Runner, dryrun: bool, output_format: str) -> _Request:
    from torchx_cli.launch.run_request import read_stdin_json

    allowed = {"stdin", "dryrun", "output_format", "as_json"}
    given = [
        max(param.opts, key=len).replace("_", "-")
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and param.name not in allowed
        and _is_given(ctx, param.name or "")
    ]
    if ctx.params["component_and_arguments"]:
        given.append("a component")
    if given:
        message = f"{given[0]} and --stdin exclude each other: put it into the JSON object"
        raise click.UsageError(message, ctx)
    args = read_stdin_json(read_utf8("--stdin"))
    scheduler = choose_scheduler(args.scheduler)
    cfg = _checked_cfg(runner, scheduler, args.scheduler_args)
    component, arguments = args.component_name, args.component_args_str or args.component_args
    here = WorkingDirectory.now()
    return _Request(
        component,
        arguments,
        scheduler,
        cfg,
        here if args.workspace in here.projects else args.workspace,
        args.parent_run_id,
        dryrun or args.dryrun,
        args.wait,
        args.log,
        False,
        output_format,
    )


def _checked_cfg(runner: Runner, scheduler: str, given: dict[str, Any]) -> dict[str, CfgVal]:
    """Return the given options (JSON values), completed from the configuration files."""
    import json

    opts = runner.scheduler_run_opts(scheduler)
    cfg = opts.cfg_from_json_repr(json.dumps(given))
    config.apply(scheduler, cfg, opts=opts)
    return cfg


def _is_given(ctx: click.Context, parameter: str) -> bool:
    return ctx.get_parameter_source(parameter) is ParameterSource.COMMANDLINE


def _run(runner: Runner, request: _Request, no_wait: bool) -> None:
    app: AppDef | None = None
    if is_document(request.component):
        if request.arguments:
            raise RequestError(
                f"{request.component} is a file that defines an app, and takes no arguments"
            )
        app = read_document(request.component)
    if request.detach and runner.scheduler_run_opts(request.scheduler).get("detach"):
        request.cfg["detach"] = True
    with component_errors(request.component):
        if request.dryrun:
            _dryrun(runner, request, app)
            return
        from torchx_cli.output.progress import shown_progress  # not for dry runs

        target = (request.scheduler, request.cfg, request.workspace, request.parent_run_id)
        # Only the handle is printed on standard output.
        with redirect_stdout(sys.stderr), shown_progress(request.output_format):
            if app is not None:
                handle = str(runner.run(app, *target))
            else:
                handle = runner.run_component(request.component, request.arguments, *target)
    _finish(runner, request, handle, no_wait)


def _dryrun(runner: Runner, request: _Request, app: AppDef | None) -> None:
    with redirect_stdout(sys.stderr):
        if app is None:
            app = runner._materialize(request.component, request.arguments)
        info = runner.dryrun(
            app, request.scheduler, request.cfg, request.workspace, request.parent_run_id
        )
    if request.output_format == TABLE:
        write(dryrun_text(info))
    elif request.output_format == YAML:
        write_utf8(dryrun_document(app, info, request.workspace))
        warn_of_secrets(app_dict(app))
    else:
        data = dryrun_data(info)
        write_data(data, request.output_format)
        warn_of_secrets(data)


def _finish(runner: Runner, request: _Request, handle: str, no_wait: bool) -> None:
    """Print a submitted app; wait for its end if requested, or if it ends with this process.

    Args:
        runner: The runner that submitted the app.
        request: The request.
        handle: The app.
        no_wait: Whether the user gave ``--no-wait``.
    """
    owned = not request.detach and runner.lives_in_client(request.scheduler, request.cfg)
    if request.output_format == TABLE:
        write(handle)
        sys.stdout.flush()
    logger.info("launched app: %s", handle)
    if owned and no_wait:
        logger.warning(
            "--no-wait: an app of scheduler %s ends with this command, which waits for it;"
            " --detach lets both continue",
            request.scheduler,
        )
    waits = request.wait or request.log or owned
    status: AppStatus | None
    if waits:
        status = _attend(runner, request, handle, owned)
    else:
        status = _first_status(runner, request, handle)
    if request.output_format != TABLE:
        write_data(run_data(handle, status), request.output_format)
    if waits and status is not None and status.state != AppState.SUCCEEDED:
        logger.error("%s", status.format().strip())
        fail(JOB_FAILED)


def _attend(runner: Runner, request: _Request, handle: str, owned: bool) -> AppStatus:
    from torchx_cli.launch.foreground import follow_in_foreground

    logger.info("waiting for the app to finish")
    status = follow_in_foreground(runner, handle, show_logs=request.log or owned, owned=owned)
    logger.info("job finished: %s", state_name(status.state))
    return status


def _first_status(runner: Runner, request: _Request, handle: str) -> AppStatus | None:
    """Return the status of a submitted app, or None if it is not needed or not available."""
    is_detached = request.detach or request.cfg.get("detach") is True
    if is_detached and request.output_format == TABLE:
        return None
    try:
        status = runner.status(handle)
    except Exception as e:  # the app was submitted; only its status is unknown
        logger.warning("the status of the app is not available yet: %s", e)
        return None
    if status is not None:
        logger.info("%s", status.format().strip())
    return status
