"""Ids of apps, and names of their jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from torchx_kit.names.ids import RANDOM_ID, make_unique
from torchx_kit.names.limits import NameRule, fit_name, fit_names

# The form of a job's name, if the app's id ends with a random id of torchx_kit.names.ids.
_JOB_NAME = re.compile(rf"(.+?-{RANDOM_ID})-([a-z0-9_]+)(?:-(\d+))?")

# A job's name must not begin with a digit, and some systems read punctuation as patterns or paths.
_APP = NameRule(40, "a-z0-9_-", first="a-z_", last="a-z0-9_", lower=True, fallback="app")
_ROLE = NameRule(48, "a-z0-9_", lower=True, replacement="_")


class JobName(NamedTuple):
    """The parts of a job's name.

    Attributes:
        app_id: Id of the app, or of the array of apps.
        role: The role's name from :func:`role_names`.
        replica: Index of the replica; None if the tasks of the job are the replicas.
    """

    app_id: str
    role: str
    replica: int | None = None

    @classmethod
    def parse(cls, text: str) -> JobName | None:
        """Return the parts of a name; None for a job that TorchX has not submitted.

        >>> JobName.parse("my-app-b4c5d6f7g9h0-trainer-3")
        JobName(app_id='my-app-b4c5d6f7g9h0', role='trainer', replica=3)
        >>> JobName.parse("nightly-build-3")
        """
        match = _JOB_NAME.fullmatch(text)
        return cls(match[1], match[2], int(match[3]) if match[3] else None) if match else None

    def __str__(self) -> str:
        suffix = "" if self.replica is None else f"-{self.replica}"
        return f"{self.app_id}-{self.role}{suffix}"


def make_app_id(name: str) -> str:
    """Return a new app id; the names of the app's jobs begin with it.

    Args:
        name: The app's name.
    """
    return make_unique(fit_name(name, _APP))


def role_names(names: Iterable[str]) -> dict[str, str]:
    """Map each role's name to a unique name that is valid in job names."""
    return fit_names(names, _ROLE)
