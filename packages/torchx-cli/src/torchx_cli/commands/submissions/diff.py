"""The command ``torchx diff``."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import click

from torchx_cli.arguments.handles import resolve_handle
from torchx_cli.arguments.options import Command, output_option
from torchx_cli.completion.values import complete_apps_and_files
from torchx_cli.output.app_data import is_document, read_document
from torchx_cli.output.printing import format_time, to_plain_data, write_result
from torchx_cli.runner_context import existing, open_runner
from torchx_runner.submissions.changes import ABSENT, Difference, differences, named_arguments
from torchx_runner.submissions.journal import Submission, find_submission, submissions
from torchx_specs.errors import RequestError
from torchx_specs.formats import serialize
from torchx_specs.redaction import masked, masked_value


class _Side(NamedTuple):
    """One of the two apps to compare, with its data and a title for the output."""

    title: str
    data: dict[str, Any]
    name: str
    submission: Submission | None = None


@click.command("diff", cls=Command)
@output_option
@click.argument("first", metavar="HANDLE|FILE", shell_complete=complete_apps_and_files)
@click.argument(
    "second",
    metavar="[HANDLE|FILE]",
    required=False,
    shell_complete=complete_apps_and_files,
)
def command(first: str, second: str | None, output_format: str) -> None:
    """Show how the second app differs from the first one.

    With one argument, compare the app with the submission of the same name before it.

    Definition, options, workspace and commit are compared if both apps are in the journal, else
    only the definitions. The definition of an app that is not in the journal comes from its
    scheduler.
    Values that look like secrets are masked. The exit code is 0, whether or not the apps differ.
    """
    if second is None:
        after = _side(first)
        before = _previous(after)
    else:
        before, after = _side(first), _side(second)
    found = [(d, *_shown_values(d)) for d in differences(*_comparable(before, after))]
    data = {
        "before": before.title,
        "after": after.title,
        "differences": [{"path": d.path, "before": old, "after": new} for d, old, new in found],
    }
    lines = [f"{d.path}: {_text(d.before, old)} -> {_text(d.after, new)}" for d, old, new in found]
    lines = [f"--- {before.title}", f"+++ {after.title}", *(lines or ["no differences"])]
    write_result(data, "\n".join(lines), output_format)


def _side(text: str) -> _Side:
    if is_document(text):
        app = read_document(text)
        return _Side(text, {"app": _document(app)}, app.name)
    handle = resolve_handle(text)
    submission = find_submission(handle)
    if submission is not None and submission.app is not None:
        return _of_submission(submission)
    with open_runner() as runner:
        app = existing(runner.describe(handle), handle)
    return _Side(handle, {"app": _document(app)}, app.name)


def _of_submission(submission: Submission) -> _Side:
    data = {
        "app": submission.app,
        "scheduler": submission.scheduler,
        "cfg": submission.cfg,
        "workspace": submission.workspace,
        "workspace_digest": submission.workspace_digest,
        "git_commit": submission.git_commit,
    }
    title = f"{submission.handle} ({format_time(submission.time)})"
    return _Side(title, data, submission.name, submission)


def _previous(side: _Side) -> _Side:
    """Return the side of the newest earlier submission of an app with the same name.

    If ``side`` is not from the journal, return the newest submission of that name. Submissions
    without a recorded app are skipped.

    Raises:
        RequestError: The journal has no such submission.
    """
    for submission in submissions():
        older = side.submission is None or (
            submission.time < side.submission.time and submission.handle != side.submission.handle
        )
        if submission.name == side.name and submission.app is not None and older:
            return _of_submission(submission)
    raise RequestError(
        f"the journal has no earlier submission of an app '{side.name}'; give a second"
        " HANDLE or FILE"
    )


def _document(app: Any) -> Any:
    return to_plain_data(serialize.to_dict(app))


def _comparable(before: _Side, after: _Side) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields that both sides have, separately for each side."""
    common = [key for key in before.data if key in after.data]
    first, second = ({key: side.data[key] for key in common} for side in (before, after))
    one, other = before.submission, after.submission
    if one and other and one.component == other.component:
        words = [_program_arguments(one), _program_arguments(other)]
        if words[0] != words[1]:
            # These names tell more than positions in a role's arguments.
            first = {**named_arguments(words[0]), **first, "app": _without_args(first["app"])}
            second = {**named_arguments(words[1]), **second, "app": _without_args(second["app"])}
    return first, second


def _program_arguments(submission: Submission) -> list[str]:
    """Return the arguments that a component passes to its program."""
    words = list(submission.arguments)
    return words[words.index("--") + 1 :] if "--" in words else []


def _without_args(app: Any) -> Any:
    roles = [{key: role[key] for key in role if key != "args"} for role in app.get("roles", ())]
    return {**app, "roles": roles}


def _shown_values(difference: Difference) -> tuple[Any, Any]:
    """Return both values of a difference with secrets masked; None for an absent value."""
    name = difference.path.rpartition(".")[2]
    option_before, option_after = difference.preceding
    return (
        _shown(name, difference.before, option_before),
        _shown(name, difference.after, option_after),
    )


def _shown(name: str, value: Any, preceding: Any) -> Any:
    """Return a value masked by its field's name, or by the option that precedes it in a list."""
    if value is ABSENT:
        return None
    if not isinstance(preceding, str):
        return masked_value(name, value)
    is_slice = isinstance(value, list)
    shown = masked([preceding, *(value if is_slice else [value])])[1:]
    return shown if is_slice else shown[0]


def _text(value: Any, shown: Any) -> str:
    if value is ABSENT:
        return "(absent)"
    return json.dumps(shown, ensure_ascii=False, default=str)
