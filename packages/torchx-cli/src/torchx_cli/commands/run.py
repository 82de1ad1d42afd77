"""The command ``torchx run``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.options import (
    Command,
    is_given,
    notify_option,
    output_option,
    single_value_option,
)
from torchx_cli.arguments.scheduler_choice import choose_scheduler
from torchx_cli.completion.values import deferred_components
from torchx_cli.exit_codes import options_of
from torchx_cli.launch.options import LaunchOptions, launch_options, write_options
from torchx_cli.launch.targets import FORM, SIZE, Form, Target, split_form
from torchx_cli.output.terminal import read_utf8
from torchx_cli.runner_context import open_runner
from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_runner.config import api as config
from torchx_specs.errors import ComponentArgumentError, RequestError
from torchx_specs.model.constants import TORCHX_CONTEXT_NAME

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from torchx_cli.launch.submit import RunRequest
    from torchx_runner import Runner

#: The options of upstream's command, whose abbreviations keep their meaning.
_UPSTREAM = (
    *("--dryrun", "--wait", "--log", "--tee_logs", "--stdin"),
    *("--scheduler", "--scheduler_args", "-cfg", "--workspace", "--parent_run_id"),
)


class _RunCommand(Command):
    """The command; its options for scripts and commands have a section of their own in the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[FORM], args = split_form(self.params, args, _UPSTREAM)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_options(self, ctx, formatter)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        if ctx.resilient_parsing and ctx.params.get("component_and_arguments"):
            return self.params[-1:]  # an option after TARGET belongs to the target
        return super().get_params(ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        if ctx.params.get("component_and_arguments"):
            return deferred_components(ctx, self.params[-1], incomplete)
        return super().shell_complete(ctx, incomplete)


@click.command(
    "run",
    cls=_RunCommand,
    extra_keys=["component"],
    context_settings={"allow_interspersed_args": False},
)
@launch_options
@click.option("--dryrun", is_flag=True, help="Show the request without submitting it.")
@click.option("--wait/--no-wait", help="Wait until the app has ended.")
@click.option("--log/--no-log", help="Show the app's logs, and wait until the app has ended.")
@click.option(
    "--detach",
    is_flag=True,
    help="Return at once; a local app continues in the background.",
)
@single_value_option(
    "--after",
    metavar="HANDLE[:OUTCOME]",
    help="Run after this app or sweep has ended with OUTCOME: ok, any or failed. If the scheduler"
    " cannot wait for it, a background process does, and the result is the handle of a sweep with"
    " one element.  [default OUTCOME: ok]",
)
@single_value_option(
    "--parent_run_id",
    metavar="ID",
    help="Record the run with this ID as the parent of the app's run, for trackers.",
)
@notify_option(
    "Wait until the app has ended, and send a notification as in [notifier:NAME] of .torchxconfig;"
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
    launch: LaunchOptions,
    dryrun: bool,
    wait: bool,
    log: bool,
    detach: bool,
    after: str | None,
    parent_run_id: str | None,
    notify: tuple[str, ...],
    tee_logs: bool,
    stdin: bool,
    output_format: str,
    component_and_arguments: tuple[str, ...],
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
            target = _target(ctx.meta[FORM], component_and_arguments, launch)
            scheduler, cfg = launch.read_scheduler(runner)
            if after:
                from torchx_cli.launch.after import held_cfg, read_after, submit_later

                required = read_after(after)
                held = held_cfg(ctx, runner, required, scheduler, cfg)
                if held is None:
                    argv = component_and_arguments
                    if not argv or argv[0].startswith("-"):  # the default target in [cli:run]
                        ctx.meta[FORM], argv = Form.PLAIN, (target.component, *target.arguments)
                    submit_later(ctx, argv, required)
                    return
                cfg = held
            request = RunRequest(
                target.component,
                target.arguments,
                scheduler,
                cfg,
                launch.workspace_of(target.component),
                parent_run_id,
                dryrun,
                wait,
                log,
                detach,
                output_format,
                name=launch.name or target.name,
                env=launch.env,
            )
        no_wait = is_given(ctx, "wait") and not request.wait
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
    for_scripts = {option.replace("_", "-") for option, _, _ in SIZE.values()}
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
        if not is_given(ctx, "notify"):  # a default in [cli:run]
            return request
        option = "--detach" if request.detach else "--no-wait"
        raise click.UsageError(
            f"--notify waits for the end of the app, and {option} does not; 'torchx watch --notify"
            f" {','.join(names)} @1' notifies later",
            ctx,
        )
    from torchx_cli.notifications import open_deliveries

    return request._replace(wait=True, deliveries=open_deliveries(names))


def _target(form: Form, argv: tuple[str, ...], launch: LaunchOptions) -> Target:
    """Return the component that runs the target, and its arguments.

    If the command line has no target, the key ``component`` of ``[cli:run]`` names it.
    """
    if (argv and not argv[0].startswith("-")) or argv[:1] == ("-",):
        return launch.target(form, argv)
    if form is Form.MODULE:
        raise click.UsageError("-m needs the name of a module, such as -m package.train")
    component = config.get_cli_defaults("run").get("component")
    if not component:
        raise click.UsageError(
            "what to run? Name a script, '-m MODULE', '-- COMMAND' or a component (torchx builtins"
            " lists them), or set 'component' in [cli:run] of .torchxconfig"
        )
    return launch.target(Form.PLAIN, (component, *argv))


def _from_stdin(ctx: click.Context, runner: Runner, dryrun: bool, output_format: str) -> RunRequest:
    import json

    from torchx_cli.launch.run_request import torchx_run_args_from_json
    from torchx_cli.launch.submit import RunRequest
    from torchx_specs.formats.documents import parse_json

    allowed = {"stdin", "dryrun", "output_format", "as_json", "notify"}
    given = [
        max(param.opts, key=len).replace("_", "-")
        for param in ctx.command.params
        if isinstance(param, click.Option)
        and param.name not in allowed
        and is_given(ctx, param.name or "")
    ]
    if ctx.params["component_and_arguments"]:
        given.append("a component")
    if given:
        message = f"{given[0]} and --stdin exclude each other: put it into the JSON object"
        raise click.UsageError(message, ctx)
    data = parse_json(read_utf8("--stdin"), "standard input")
    if not isinstance(data, dict):
        raise RequestError(
            f"standard input: expected a JSON object, got {type(data).__name__} {data!r:.60}"
        )
    args = torchx_run_args_from_json(data)
    scheduler = choose_scheduler(args.scheduler)
    opts = runner.scheduler_run_opts(scheduler)
    cfg = opts.cfg_from_json_repr(json.dumps(args.scheduler_args))
    config.apply(scheduler, cfg, opts=opts)
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
