"""Ids of apps, and names of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_kit.names.ids import RANDOM_ID, make_unique
from torchx_kit.names.limits import NameRule, fit_name, fit_names

# The form of a job's name, if the app's id ends with a random id of torchx_kit.names.ids.
_JOB_NAME = re.compile(rf"(.+?-{RANDOM_ID})-(.+)")

# Rules for names in job names. A job's name must not begin with a digit, and qsub reads some
# punctuation as patterns or paths.
_APP = NameRule(40, "a-z0-9_-", first="a-z_", last="a-z0-9_", lower=True, fallback="app")
_ROLE = NameRule(48, "a-z0-9_", lower=True, replacement="_")


def make_app_id(name: str) -> str:
    """Return a new app id; the names of the app's jobs begin with it.

    Args:
        name: The app's name.
    """
    return make_unique(fit_name(name, _APP))


def role_names(names: Iterable[str]) -> dict[str, str]:
    """Map each role's name to a unique name that is valid in job names."""
    return fit_names(names, _ROLE)


def job_name(app_id: str, role: str) -> str:
    """Return the name of a role's job.

    Args:
        app_id: The app's id.
        role: The role's name from :func:`role_names`.
    """
    return f"{app_id}-{role}"


def split_job_name(name: str) -> tuple[str, str] | None:
    """Return the app's id and the role's name from a job's name, or None for other jobs.

    >>> split_job_name("my-app-b4c5d6f7g9h0-trainer"), split_job_name("nightly-build")
    (('my-app-b4c5d6f7g9h0', 'trainer'), None)
    """
    match = _JOB_NAME.fullmatch(name)
    return (match[1], match[2]) if match else None
