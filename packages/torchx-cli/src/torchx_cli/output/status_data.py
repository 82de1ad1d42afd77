"""Converts the status of an app to plain data, for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx_cli.output.printing import state_name
from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_specs.model.status import AppStatus


def status_data(
    app_handle: str, status: AppStatus, roles: list[str] | None = None, error: str = ""
) -> dict[str, Any]:
    """Return the status of an app with the app's handle, id and URL, and the scheduler's name.

    ``summary`` is the first line that ``torchx status`` prints. ``first_failure`` describes the
    replica that failed first, with its error message; it is None without a failure.

    Args:
        app_handle: The app.
        status: The status of the app.
        roles: The roles to include; None or an empty list means all.
        error: The line in which the program of the first failed replica names its error.
    """
    # Imported here, because `torchx run` uses only run_data(), and must start quickly.
    from torchx_cli.output.status_text import summary
    from torchx_cli.output.times import rfc3339

    return {
        **status.to_json(roles),
        **_handle_data(app_handle),
        "ui_url": status.ui_url,
        "submitted": rfc3339(status.submitted),
        "started": rfc3339(status.started),
        "ended": rfc3339(status.ended),
        "attempts": [
            {
                **vars(attempt),
                "started": rfc3339(attempt.started),
                "ended": rfc3339(attempt.ended),
            }
            for attempt in status.attempts
        ],
        "summary": summary(status),
        "first_failure": _failure_data(status, error),
    }


def _failure_data(status: AppStatus, error: str) -> dict[str, Any] | None:
    from torchx_cli.output.status_text import first_failure

    failure = first_failure(status)
    if failure is None:
        return None
    replica = failure.replica
    return {
        "role": replica.role,
        "replica": replica.id,
        "node": replica.node,
        "exit_code": failure.exit_code,
        "reason": replica.reason or None,
        "message": failure.message or None,
        "error_line": error or None,
    }


def _handle_data(app_handle: str) -> dict[str, Any]:
    parsed = parse_app_handle(app_handle)
    return {
        "handle": app_handle,
        "app_id": parsed.app_id,
        "scheduler": parsed.scheduler_backend,
    }


def run_data(app_handle: str, status: AppStatus | None) -> dict[str, Any]:
    """Return the result of a submission; the state and the URL are None if unknown."""
    return {
        **_handle_data(app_handle),
        "state": None if status is None else state_name(status.state),
        "ui_url": None if status is None else status.ui_url,
    }
