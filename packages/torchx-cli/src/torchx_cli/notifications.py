"""Makes notifications of ended jobs; a plugin sends them by the notifiers of the configuration."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchx_cli.output.status_text import status_data
from torchx_cli.output.terminal import escape_controls
from torchx_runner.config import api as config
from torchx_runner.submissions.journal import find_submission
from torchx_specs.errors import RequestError
from torchx_specs.model.status import AppState, AppStatus
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import ALL
from torchx_specs.redaction import masked

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import Deliveries

VERSION = 1


def open_deliveries(names: Iterable[str]) -> Deliveries:
    """Return what sends notifications to the notifiers of some sections ``[notifier:NAME]``.

    Raises:
        RequestError: No plugin sends notifications, or a section is missing or refused.
        PluginError: A plugin fails.
    """
    notifiers = get_manager().notifiers()
    record = notifiers.find(ALL)
    if record is None:
        hint = notifiers.install_hint(ALL)
        raise RequestError(f"--notify: no plugin sends notifications{hint}")
    deliveries: Deliveries = record.load()(names, config.plugin_sections("notifier"))
    return deliveries


def job_data(app_handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Return data about a job, with secrets masked.

    The name is that in the journal, or the id of an app that others submitted.

    Args:
        app_handle: The app.
        status: Its status; None if the scheduler no longer knows the app.
    """
    if status is None:
        status = AppStatus(AppState.UNKNOWN, msg="the scheduler no longer has this app")
    data = status_data(app_handle, status)
    submission = find_submission(app_handle)
    name = data["app_id"] if submission is None else submission.name
    keys = ("handle", "app_id", "scheduler", "state", "submitted", "started", "ended")
    shown = {key: data[key] for key in (*keys, "summary", "first_failure", "ui_url")}
    result: dict[str, Any] = masked({"name": name, **shown})
    return result


def job_ended(app_handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Return the notification of an ended job, with control characters escaped.

    The parameters are those of :func:`job_data`. A notifier may print the data on a terminal.
    """
    data: dict[str, Any] = _escaped(job_data(app_handle, status))
    return {"version": VERSION, "event": "job.ended", **data}


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    return escape_controls(value, keep_colors=False) if isinstance(value, str) else value
