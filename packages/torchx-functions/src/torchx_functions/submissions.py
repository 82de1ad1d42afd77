"""Records of submissions, which help to find a job whose client was killed during ``submit``.

A record is written before the job is submitted, and removed after the job's handle was recorded.
The file name of a record is the name of the job's app.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchx_functions.errors import NoResultError
from torchx_functions.folders import PrivateFolder, open_group
from torchx_functions.group import JobGroup, read_counts
from torchx_functions.job import Job, default_runner
from torchx_kit.home import TORCHX_HOME
from torchx_specs.errors import TorchXError, one_line
from torchx_sweep.handles import find_apps

if TYPE_CHECKING:
    from torchx_runner import Runner

logger = logging.getLogger(__name__)


@dataclass
class Submission:
    """A submission whose handle is not recorded yet.

    Args:
        name: The name of the app.
        folder: The folder of the job's group.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler.
    """

    name: str
    folder: str
    scheduler: str
    cfg: dict[str, Any]

    def write(self) -> None:
        """Record the submission."""
        with _open_submissions() as records:
            records.write(self.name, json.dumps(asdict(self), default=str).encode())

    def remove(self) -> None:
        """Remove the record; a missing record is not an error."""
        with _open_submissions() as records:
            records.remove(self.name)


def recorded_submissions() -> Iterator[Submission]:
    """Yield the submissions whose handles are not recorded."""
    with _open_submissions() as records:
        for name in records.names():
            try:
                yield Submission(**json.loads(records.read(name)))
            except FileNotFoundError:  # another process has removed it
                continue
            except (NoResultError, TypeError) as e:
                logger.warning("the record of the submission %s cannot be read: %s", name, e)


def interrupted_jobs(runner: Runner | None = None) -> list[Job[Any]]:
    """Return the jobs whose clients were killed before they recorded the handle of the job.

    The handles are recorded, so that :meth:`Job.from_handle` accepts them from now on. The result
    may include a job that another process is submitting at this moment.

    Args:
        runner: Lists the apps of the schedulers; the default is a runner of this process.
    """
    return recover(runner or default_runner())[0]


def recover(runner: Runner, scheduler: str = "") -> tuple[list[Job[Any]], dict[str, str]]:
    """Look for the apps of interrupted submissions, and record their handles.

    Args:
        runner: Lists the apps.
        scheduler: Only submissions to this scheduler; empty means all.

    Returns:
        The jobs of the submissions whose app was found; and a dict with a reason for each folder
        whose submission is undecided: its app was not found, but the list of apps is incomplete.
        All other submissions to the scheduler have no app.
    """
    queries: dict[tuple[str, str], list[Submission]] = {}
    for submission in recorded_submissions():
        if not os.path.isdir(submission.folder):
            submission.remove()
        elif scheduler in ("", submission.scheduler):
            key = (submission.scheduler, json.dumps(submission.cfg, sort_keys=True))
            queries.setdefault(key, []).append(submission)
    jobs: list[Job[Any]] = []
    unknown: dict[str, str] = {}
    for (name, _), submissions in queries.items():
        names = {submission.name for submission in submissions}
        try:
            apps, is_complete = find_apps(runner, name, submissions[0].cfg, names)
            handles = {found: app.app_handle for found, app in apps.items()}
        except TorchXError as e:
            logger.warning("the apps of %s cannot be listed: %s", name, one_line(e))
            handles, is_complete = {}, False
        jobs += _recorded(runner, submissions, handles)
        if not is_complete:
            reason = f"{name} cannot tell whether it has the app"
            unknown.update({s.folder: f"{reason} {s.name}" for s in submissions})
    for job in jobs:
        unknown.pop(os.path.dirname(job.folder), None)
    return jobs, unknown


def _recorded(
    runner: Runner, submissions: list[Submission], handles: Mapping[str, str]
) -> Iterator[Job[Any]]:
    for submission in submissions:
        handle = handles.get(submission.name)
        if handle is None:
            continue
        try:
            with open_group(submission.folder) as folder:
                _, retries = read_counts(folder)
        except FileNotFoundError:
            continue
        except NoResultError as e:
            logger.warning("%s", e)
            continue
        group: JobGroup[Any] = JobGroup(submission.folder, runner, handle, 1, retries)
        group.remember()
        submission.remove()
        yield group[0]


def _open_submissions() -> PrivateFolder:
    TORCHX_HOME("functions")  # only the last folder of a path gets mode 0700, so create this first
    return PrivateFolder(str(TORCHX_HOME("functions", "submissions")), 1)
