"""Makes the app of a submission again, with other arguments of its component."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from torchx_cli.launch.submit import component_errors
from torchx_runner.components.finder import get_component
from torchx_runner.submissions.call_changes import changed_arguments, read_changes
from torchx_specs.components.signature import signature_of
from torchx_specs.errors import RequestError
from torchx_specs.formats import serialize
from torchx_specs.redaction import masked

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_runner.submissions.journal import Submission
    from torchx_specs.model.app import AppDef

logger = logging.getLogger(__name__)


def app_of_changed_call(
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
