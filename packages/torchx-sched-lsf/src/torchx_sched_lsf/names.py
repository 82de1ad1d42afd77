"""Names of apps and jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import NameRule, fit_names

# Of a project and the names of its jobs: no pattern, array or separator of LSF's.
_PART = NameRule(48, "a-z0-9_-", first="a-z0-9_", lower=True, replacement="_")


def cleanup_str(data: str) -> str:
    """Returns a name with what LSF accepts left: lower-case letters, digits, ``-`` and ``_``.

    >>> cleanup_str("-My App!")
    'myapp'
    """
    return re.sub(r"[^a-z0-9\\_-]", "", data.removeprefix("-").lower()).replace("\\", "")


def make_app_id(name: str) -> str:
    """Returns a new id for an app: its project."""
    return cleanup_str(make_unique(cleanup_str(name)[:40] or "app"))


def role_names(names: Iterable[str]) -> dict[str, str]:
    """Returns what each role is called in the names of jobs, no two alike."""
    return fit_names(names, _PART)


def job_name(app_id: str, role: str, k: int) -> str:
    """Returns the name of a replica's job."""
    return f"{app_id}-{role}-{k}"


def split_job_name(app_id: str, name: str) -> tuple[str, int] | None:
    """Returns the role and the replica, None if the job is not of that app.

    >>> split_job_name("app-x1", "app-x1-trainer-3")
    ('trainer', 3)
    """
    prefix = f"{app_id}-"
    role, dash, k = name.removeprefix(prefix).rpartition("-")
    return (role, int(k)) if name.startswith(prefix) and dash and k.isdigit() else None
