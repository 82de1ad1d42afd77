"""Ids of apps, and names of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from torchx_kit.jobs.arrays import element_id as element_id
from torchx_kit.jobs.arrays import split_element_id
from torchx_kit.names.ids import RANDOM_ID, make_unique
from torchx_kit.names.limits import NameRule, fit_names

# The form of a job's name, if the app's id ends with a random id of torchx_kit.names.ids.
_JOB_NAME = re.compile(rf"(.+?-{RANDOM_ID})-(.+)-(\d+)(?:\[(\d+)\])?")

# Rule for role names in job names: no characters that have a meaning in LSF's names and patterns.
_PART = NameRule(48, "a-z0-9_-", first="a-z0-9_", lower=True, replacement="_")


def cleanup_str(data: str) -> str:
    """Convert a name to lower case; drop one leading dash, and all but a-z, 0-9, ``-`` and ``_``.

    >>> cleanup_str("-My App!")
    'myapp'
    """
    return re.sub(r"[^a-z0-9\\_-]", "", data.removeprefix("-").lower()).replace("\\", "")


def make_app_id(name: str) -> str:
    """Return a new app id; the names of the app's jobs begin with it.

    Args:
        name: The app's name.
    """
    return cleanup_str(make_unique(cleanup_str(name)[:40] or "app"))


def role_names(names: Iterable[str]) -> dict[str, str]:
    """Map each role's name to a unique name that is valid in job names."""
    return fit_names(names, _PART)


def split_element(app_id: str) -> tuple[str, int]:
    """Return the array's app id and the element's index; for another app, its own id and 0.

    >>> split_element("train-x1.7"), split_element("train-x1")
    (('train-x1', 7), ('train-x1', 0))
    """
    array_id, index = split_element_id(app_id)
    return (array_id, index) if index else (app_id, 0)


def job_name(app_id: str, role: str, k: int) -> str:
    """Return the name of a replica's job, as bjobs shows it.

    >>> job_name("app-x1", "trainer", 3), job_name("app-x1.7", "trainer", 0)
    ('app-x1-trainer-3', 'app-x1-trainer-0[7]')

    Args:
        app_id: The app's id.
        role: The role's name from :func:`role_names`.
        k: Index of the replica.
    """
    array_id, index = split_element(app_id)
    return f"{array_id}-{role}-{k}" + (f"[{index}]" if index else "")


def split_job_name(app_id: str, name: str) -> tuple[str, int] | None:
    """Return role and replica from a job's name, or None if it is not a job of the app.

    >>> split_job_name("app-x1", "app-x1-trainer-3"), split_job_name("app-x1.7", "app-x1-t-0[7]")
    (('trainer', 3), ('t', 0))
    """
    array_id, index = split_element(app_id)
    prefix, suffix = f"{array_id}-", f"[{index}]" if index else ""
    if not (name.startswith(prefix) and name.endswith(suffix)):
        return None
    role, dash, k = name.removeprefix(prefix).removesuffix(suffix).rpartition("-")
    return (role, int(k)) if dash and k.isdigit() else None


def app_of_job(name: str) -> str:
    """Return the id of the app that a job belongs to, by the job's name.

    Returns:
        The id; an empty string if the name does not have the form that :func:`job_name` and
        :func:`make_app_id` give it.

    >>> app_of_job("my-app-b4c5d6f7g9h0-trainer-3"), app_of_job("nightly-build-3")
    ('my-app-b4c5d6f7g9h0', '')
    >>> app_of_job("my-app-b4c5d6f7g9h0-trainer-0[7]")
    'my-app-b4c5d6f7g9h0.7'
    """
    match = _JOB_NAME.fullmatch(name)
    if match is None:
        return ""
    return element_id(match[1], int(match[4])) if match[4] else match[1]
