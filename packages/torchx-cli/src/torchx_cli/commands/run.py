"""The command ``torchx run``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import (
    cfg_option,
    notify_option,
    output_option,
    scheduler_option,
    single_value_option,
)
from torchx_cli.arguments.scheduler_choice import choose_scheduler, read_cfg, take_host
from torchx_cli.completion.values import complete_directories, deferred_components
from torchx_cli.exit_codes import options_of
from torchx_cli.launch.targets import Form, Target, read_target, split_form
from torchx_cli.output.standard_streams import read_utf8
from torchx_cli.runner_context import open_runner
from torchx_kit.times import parse_limit
from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_runner.config import api as config
from torchx_specs.errors import ComponentArgumentError, RequestError
from torchx_specs.model.constants import TORCHX_CONTEXT_NAME
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchx_cli.launch.submit import RunRequest
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal


_CLOCK = re.compile(r"(\d+):(\d\d)(?::(\d\d))?")
F = TypeVar("F", bound="Callable[..., Any]")

#: The key of the target's form in the metadata of a context.
_FORM = "torchx.target_form"

#: The options for scripts and commands, with metavar and help, by the parameter of the built-in
#: components that they set.
_SIZE = {
    "j": ("-j", "NODESxPROCESSES", "Start this number of processes on each node, by torchrun."),
    "num_replicas": ("--replicas", "N", "Run this number of replicas.  [default: 1]"),
    "cpu": ("--cpu", "N", "Request this number of CPUs for each replica."),
    "gpu": ("--gpu", "N", "Request this number of GPUs for each replica."),
    "memMB": ("--memMB", "MB", "Request this amount of memory for each replica, in MB."),
    "h": ("--host-resource", "NAME", "Request this named resource, such as gpu.small."),
    "image": ("--image", "IMAGE", "Run in this container image."),
    "mounts": ("--mounts", "SRC:DST[:ro],...", "Mount directories of the host."),
    "max_retries": ("--max-retries", "N", "Restart a failed job so often.  [default: 0]"),
}


def _variables(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    variables = {}
    for number, text in enumerate(values, 1):
        key, equals, value = text.partition("=")
        if not key or not equals:
            # The message does not contain the text, whose value may be a secret.
            raise click.UsageError(f"--env number {number} is not of the form KEY=VALUE", ctx)
        variables[key] = value
    return variables


def _time_limit(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a time limit with a unit, which means the same to all schedulers."""
    clock = _CLOCK.fullmatch(value or "")
    if clock:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return f"{(hours * 60 + minutes) * 60 + seconds}s"
    if value is not None and parse_limit(value) is None:
        raise click.UsageError(
            f"--time {value}: not a time with a unit; write 90s, 30m, 2h, 1d or hours:minutes", ctx
        )
    return value


class _RunCommand(Command):
    """The command; its options for scripts and commands have a section of their own in the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        form, args = split_form(self.params, args)
        ctx.meta[_FORM] = form
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title, is_size in (("Options", False), ("Options for scripts and commands", True)):
            shown = [option for option in options if (option.name in _SIZE) is is_size]
            with formatter.section(title):
                formatter.write_dl(filter(None, (option.get_help_record(ctx) for option in shown)))


def _size_options(function: F) -> F:
    """Add the options for scripts and commands; the command receives their values as keywords."""
    for parameter, (option, metavar, help_text) in reversed(_SIZE.items()):
        function = single_value_option(option, parameter, metavar=metavar, help=help_text)(function)
    return function


@click.command(
    "run",
    cls=_RunCommand,
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
    shell_complete=complete_directories,
    help="Upload this directory into the job; '' uploads nothing."
    "  [default: the working directory]",
)
@single_value_option(
    "--parent_run_id",
    metavar="ID",
    help="Record the run with this ID as the parent of the app's run, for trackers.",
)
@single_value_option("--name", metavar="NAME", help="Give the app this name.")
@click.option(
    "--env",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_variables,
    help="Set a variable in every role; may be repeated.",
)
@click.option(
    "--setup",
    metavar="LINE",
    multiple=True,
    help="Run this line of shell before the program, such as 'module load cuda'; may be repeated."
    " For schedulers with the option setup.",
)
@single_value_option(
    "--time",
    "time_limit",
    metavar="TIME",
    callback=_time_limit,
    help="End the job after this time: 30m, 2h, 1d, or hours:minutes. For schedulers with the"
    " option time.",
)
@notify_option(
    "Wait until the app has ended, and send a notification as in [notifiers:NAME] of .torchxconfig;"
    " may be repeated."
)
@click.option(
    "--tee_logs",
    is_flag=True,
    help="Accepted without effect: log lines always name their replica.",
)
@click.option(
    "--stdin",
    is_flag=True,
    help="Read the component, its arguments and the options of this command as a JSON object from"
    " standard input.",
)
@output_option
@_size_options
@click.argument(
    "component_and_arguments",
    metavar="TARGET [ARGUMENTS]...",
    nargs=-1,
    type=click.UNPROCESSED,
    shell_complete=deferred_components,
)
@click.pass_context
def command(
    ctx: click.Context,
    /,
    scheduler: str | None,
    scheduler_args: tuple[str, ...],
    dryrun: bool,
    wait: bool,
    log: bool,
    detach: bool,
    workspace: str | None,
    parent_run_id: str | None,
    name: str | None,
    env: dict[str, str],
    setup: tuple[str, ...],
    time_limit: str | None,
    notify: tuple[str, ...],
    tee_logs: bool,
    stdin: bool,
    output_format: str,
    component_and_arguments: tuple[str, ...],
    **size: str | None,
) -> None:
    """Run a script, a module, a command or a component with ARGUMENTS, or an app from a file.

    TARGET is a script (train.py), a module (-m PACKAGE.MODULE), a command after '--' (-- torchrun
    train.py), a component, or a file that defines an app (job.yaml, job.json, or '-' for standard
    input). A component is a name that 'torchx builtins' lists, FILE.py:FUNCTION or
    PACKAGE.MODULE:FUNCTION; 'torchx run COMPONENT --help' lists its ARGUMENTS. Options of this
    command go before TARGET.

    The command returns once the app is submitted. If the app ends with this command (local_cwd and
    local_docker), it waits for the app, and shows its logs on standard error. Standard output
    contains the app's handle only.
    """
    # Imported here, because completion and --help need only the options.
    from torchx_cli.launch.submit import RunRequest, submit

    os.environ.setdefault(TORCHX_CONTEXT_NAME, "cli_run")
    with open_runner(config.load_sections("component")) as runner:
        if stdin:
            request = _from_stdin(ctx, runner, dryrun, output_format)
        else:
            uploaded = os.getcwd() if workspace is None else workspace
            component, arguments, own_name = _target(
                ctx.meta[_FORM],
                component_and_arguments,
                {name: value for name, value in size.items() if value is not None},
                uploaded,
                [name for name in size if _is_given(ctx, name)],
            )
            chosen, literals = take_host(choose_scheduler(scheduler), scheduler_args)
            cfg = read_cfg(runner, chosen, literals)
            if setup:
                _check_option(runner, chosen, "setup")
                before = cfg.get("setup")
                cfg["setup"] = [*(before if isinstance(before, list) else []), *setup]
            if time_limit:
                _check_option(runner, chosen, "time")
                cfg["time"] = time_limit
            request = RunRequest(
                component,
                arguments,
                chosen,
                cfg,
                _workspace(workspace, component),
                parent_run_id,
                dryrun,
                wait,
                log,
                detach,
                output_format,
                name=name or own_name,
                env=env,
            )
        no_wait = _is_given(ctx, "wait") and not request.wait
        if notify:
            request = _with_notifiers(ctx, request, notify, no_wait)
        try:
            submit(runner, request, no_wait)
        except ComponentArgumentError as e:
            raise _misplaced_option(e, ctx.command, request) or e from None


def _misplaced_option(
    error: ComponentArgumentError, command: click.Command, request: RunRequest
) -> ComponentArgumentError | None:
    """Return an error that says where to put an option of this command.

    Return None if ``error`` has another cause than such an option among the component's arguments.
    """
    for_scripts = {option.replace("_", "-") for option, _, _ in _SIZE.values()}
    options = {opt.replace("_", "-") for opt in options_of(command)} - for_scripts
    for argument in request.arguments:
        name = argument.partition("=")[0]
        if name.replace("_", "-") in options and f"unknown option {name}" in str(error):
            return ComponentArgumentError(
                f"{name} belongs to torchx run; put it before {request.component}"
            )
    return None


def _with_notifiers(
    ctx: click.Context, request: RunRequest, names: tuple[str, ...], no_wait: bool
) -> RunRequest:
    """Return a request that waits for the end of the app, and then notifies.

    A dry run is returned unchanged. So is a request that does not wait, if the names come from
    ``.torchxconfig``; if they come from the command line, this is an error.
    """
    if request.dryrun:
        return request
    if request.detach or no_wait:
        if not _is_given(ctx, "notify"):  # a default in [cli:run]
            return request
        option = "--detach" if request.detach else "--no-wait"
        raise click.UsageError(
            f"--notify waits for the end of the app, and {option} does not; 'torchx watch --notify"
            f" {','.join(names)} @1' notifies later",
            ctx,
        )
    from torchx_cli.notifications import open_deliveries

    return request._replace(wait=True, deliveries=open_deliveries(names))


def _check_option(runner: Runner, scheduler: str, name: str) -> None:
    """Raise an error unless a scheduler has the option that ``--setup`` or ``--time`` sets."""
    if runner.scheduler_run_opts(scheduler).get(name) is None:
        raise RequestError(
            f"--{name}: scheduler {scheduler} has no option '{name}' (torchx runopts {scheduler}"
            " lists its options)"
        )


def _target(
    form: Form, argv: tuple[str, ...], size: dict[str, str], workspace: str, given: list[str]
) -> Target:
    """Return the component that runs the target, and its arguments.

    If the command line has no target, the key ``component`` of ``[cli:run]`` names it.
    """
    if (argv and not argv[0].startswith("-")) or argv[:1] == ("-",):
        return read_target(form, argv, size, workspace or None, given)
    if form is Form.MODULE:
        raise click.UsageError("-m needs the name of a module, such as -m package.train")
    component = config.get_cli_defaults("run").get("component")
    if not component:
        raise click.UsageError(
            "what to run? Name a script, '-m MODULE', '-- COMMAND' or a component (torchx builtins"
            " lists them), or set 'component' in [cli:run] of .torchxconfig"
        )
    return read_target(Form.PLAIN, (component, *argv), size, workspace or None, given)


def _workspace(given: str | None, component: str) -> Workspace | str | None:
    """Return the given workspace; by default the working directory, or None for an app document."""
    from torchx_cli.output.app_data import is_document

    if given is not None:
        return Workspace.from_str(given)
    return None if is_document(component) else WorkingDirectory.now()


def _from_stdin(ctx: click.Context, runner: Runner, dryrun: bool, output_format: str) -> RunRequest:
    from torchx_cli.launch.run_request import read_stdin_json
    from torchx_cli.launch.submit import RunRequest

    allowed = {"stdin", "dryrun", "output_format", "as_json", "notify"}
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
    return RunRequest(
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
