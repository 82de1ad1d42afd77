"""The command ``torchx rerun``."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from torchx_cli.arguments.options import (
    Command,
    cfg_option,
    handle_argument,
    output_option,
    scheduler_option,
)
from torchx_cli.arguments.scheduler_choice import choose_scheduler, parse_cfg, read_cfg
from torchx_cli.launch.submit import RunRequest, component_errors, submit
from torchx_cli.runner_context import open_runner
from torchx_runner.components.finder import get_component
from torchx_runner.config.api import load_sections
from torchx_runner.submissions.changes import changed_arguments, read_changes, with_fields
from torchx_runner.submissions.journal import Submission, checked_out_commit, find_submission
from torchx_runner.submissions.recorded_code import use_recorded_code
from torchx_specs.components.signature import signature_of
from torchx_specs.errors import RequestError
from torchx_specs.formats import serialize
from torchx_specs.model.app import AppDef, ComponentCall
from torchx_specs.model.constants import TORCHX_CONTEXT_NAME
from torchx_specs.redaction import masked

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.workspace.spec import Workspace

logger = logging.getLogger(__name__)


@click.command("rerun", cls=Command, context_settings={"ignore_unknown_options": True})
@click.option(
    "--add", is_flag=True, help="Add an argument that the program did not have, at the end."
)
@click.option("--edit", is_flag=True, help="Change the component's call in $EDITOR.")
@click.option(
    "--set",
    "assignments",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Change a field of the app: name=x, env.LR=0.1, trainer.num_replicas=4, args.2=0.1 or"
    " resource.gpu=2. Without a role, the field of every role is changed.",
)
@scheduler_option("Submit to this scheduler.  [default: the scheduler of HANDLE]")
@cfg_option
@click.option(
    "--workspace",
    metavar="PATH",
    help="Upload the present files of this workspace, such as '.'.  [default: the image or folder"
    " that was built for HANDLE, if there is one]",
)
@click.option("--dryrun", is_flag=True, help="Show the request without submitting it.")
@click.option("--wait/--no-wait", help="Wait until the app has ended.")
@click.option("--log/--no-log", help="Show the app's logs, and wait until the app has ended.")
@click.option(
    "--detach", is_flag=True, help="Return at once; a local app continues in the background."
)
@output_option
@handle_argument
@click.argument("changes", metavar="[--ARGUMENT VALUE]...", nargs=-1, type=click.UNPROCESSED)
def command(
    app_handle: str,
    changes: tuple[str, ...],
    add: bool,
    edit: bool,
    assignments: tuple[str, ...],
    scheduler: str | None,
    scheduler_args: tuple[str, ...],
    workspace: str | None,
    dryrun: bool,
    wait: bool,
    log: bool,
    detach: bool,
    output_format: str,
) -> None:
    """Submit the app HANDLE again, as it is in the journal, or with other arguments.

    An ARGUMENT of the component, or of its program, gets a new value. --set changes a field of the
    app instead.

    The scheduler, its options and the code are the same: the image or folder that was built for
    HANDLE is used again. If none was built, or another scheduler is given, the present files of the
    workspace are used. A line says which. -cfg changes single options. If -s names another
    scheduler, its options come from .torchxconfig.

    \b
    torchx rerun @1
    torchx rerun @1 --lr 0.5
    torchx rerun train --set env.LR=0.1 --set trainer.num_replicas=4
    """
    os.environ.setdefault(TORCHX_CONTEXT_NAME, "cli_run")
    submission = _remembered(app_handle)
    with open_runner(load_sections("component")) as runner:
        app = serialize.from_dict(submission.app or {})
        if changes or edit:
            app = _app_of_changed_call(runner, submission, changes, add=add, edit=edit)
        elif submission.component:
            ComponentCall(submission.component, submission.arguments).record(app)
        if assignments:
            app = serialize.from_dict(with_fields(serialize.to_dict(app), assignments))
        chosen = submission.scheduler if scheduler is None else choose_scheduler(scheduler)
        request = RunRequest(
            component=app_handle,
            arguments=[],
            scheduler=chosen,
            cfg=_cfg(runner, submission, chosen, scheduler_args),
            workspace=_code(app, submission, chosen) if workspace is None else workspace,
            parent_run_id=submission.parent_run_id,
            dryrun=dryrun,
            wait=wait,
            log=log,
            detach=detach,
            output_format=output_format,
            app=app,
        )
        submit(runner, request, no_wait=False)


def _remembered(app_handle: str) -> Submission:
    """Return the submission of an app, which must contain the app's definition.

    Raises:
        RequestError: The journal does not have the submission or its app.
    """
    submission = find_submission(app_handle)
    how = f"'torchx describe -o yaml {app_handle} > job.yaml' and 'torchx run job.yaml' may do it"
    if submission is None:
        raise RequestError(
            f"{app_handle} is not in the journal of your submissions from this machine; {how}"
        )
    if submission.app is None:
        raise RequestError(
            f"the journal does not have the app of {app_handle}: {submission.app_missing}; {how}"
        )
    return submission


def _cfg(
    runner: Runner, submission: Submission, scheduler: str, literals: tuple[str, ...]
) -> dict[str, CfgVal]:
    if scheduler != submission.scheduler:
        return read_cfg(runner, scheduler, literals)
    return parse_cfg(runner, scheduler, literals, lambda cfg: cfg.update(submission.cfg | cfg))


def _code(app: AppDef, submission: Submission, scheduler: str) -> Workspace | None:
    """Give an app the code of a submission, and return the workspace to submit with.

    A warning says if the workspace's present files are used and another commit is checked out.
    """
    workspace, origin = use_recorded_code(app, submission, scheduler)
    if origin:
        logger.info("code: %s", origin)
    if workspace is None:
        return None
    folder = next(iter(workspace.projects), "")
    commit = checked_out_commit(os.path.expanduser(folder))
    if submission.git_commit and commit and commit != submission.git_commit:
        logger.warning(
            "workspace %s has commit %.10s now; %s was submitted with %.10s",
            folder,
            commit,
            submission.handle,
            submission.git_commit,
        )
    return workspace


def _app_of_changed_call(
    runner: Runner, submission: Submission, words: Sequence[str], *, add: bool, edit: bool
) -> AppDef:
    """Return the app of a submission's component, with other arguments.

    The app keeps the name and the variables that ``torchx run --name`` and ``--env`` set.

    Args:
        runner: The runner.
        submission: The submission.
        words: The changes, such as ``["--lr", "0.5"]``.
        add: Whether an option that the program's arguments lack is added.
        edit: Whether to open the call in the user's editor.

    Raises:
        RequestError: The journal does not have the call, or an argument cannot be changed.
        ComponentError: See :meth:`Runner.materialize`.
    """
    if not submission.component:
        raise RequestError(
            f"the journal does not have the component that made {submission.handle}; change fields"
            " of the app with --set, such as --set args.2=0.5"
        )
    component = _component_path(submission)
    with component_errors(component):
        changes = list(read_changes(words))
        signature = signature_of(get_component(component).fn)
        arguments = changed_arguments(submission.arguments, changes, signature, add)
        if edit:
            component, arguments = _edited(component, arguments)
        logger.info("the call is now: torchx run %s", shlex.join(masked([component, *arguments])))
        app = runner.materialize(component, arguments)
    before = serialize.from_dict(submission.app or {})
    if not any(change.option in ("--name", "-n") for change in changes) and not edit:
        app.name = before.name
    variables = {role.name: role.env for role in before.roles}
    for role in app.roles:
        role.env = {**variables.get(role.name, {}), **role.env}
    return app


def _component_path(submission: Submission) -> str:
    """Return the component; if it is in a file, with the file's path from this directory."""
    path, colon, function = submission.component.rpartition(":")
    if not colon or not path.endswith(".py") or os.path.isabs(path) or os.path.exists(path):
        return submission.component
    return f"{os.path.relpath(os.path.join(submission.folder, path))}:{function}"


def _edited(component: str, arguments: Sequence[str]) -> tuple[str, list[str]]:
    text: Any = click.edit(shlex.join([component, *arguments]) + "\n", extension=".sh")
    try:
        words = shlex.split(text or "")
    except ValueError as e:
        raise RequestError(f"the edited call cannot be read: {e}") from None
    if not words:
        raise RequestError("the edited call is empty, or was not saved; nothing is submitted")
    return words[0], words[1:]
