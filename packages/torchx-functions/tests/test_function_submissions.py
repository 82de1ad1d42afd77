"""Tests of submissions whose client was killed, and of the pruner of old folders."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchx_functions import Executor, Job, JobGroup, interrupted_jobs, submit
from torchx_functions.job import default_runner
from torchx_functions.plugin import torchx_pruners
from torchx_functions.pruning import unused_functions
from torchx_functions.submissions import Submission, recorded_submissions
from torchx_specs import errors
from torchx_specs.errors import UnknownAppException
from torchx_specs.workspace.pruning import PruneQuery

LONGEST = 120
# A client that kills itself: with the argument "after", it does so between the submission and the
# record of the handle; otherwise before the submission.
CLIENT = """
import os, signal, sys
from torchx_functions import submit
from torchx_functions.submissions import Submission
from torchx_runner import Runner

def kill(*args):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(*((Submission, "settle") if sys.argv[1] == "after" else (Runner, "schedule")), kill)
submit(pow, 2, 10)
"""


def unsettled() -> list[Submission]:
    return [submission for submission in recorded_submissions() if not submission.handle]


def run_killed_client(moment: str) -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT, moment], check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_job_without_a_recorded_handle_is_found_by_its_name() -> None:
    run_killed_client("after")
    [app] = default_runner().list("local_cwd")
    assert Job.from_handle(app.app_handle).result(LONGEST) == 1024
    assert unsettled() == []
    assert Job.from_handle(app.app_handle).result(LONGEST) == 1024


def test_interrupted_jobs_are_listed_once() -> None:
    run_killed_client("after")
    submit(int).result(LONGEST)
    [job] = interrupted_jobs()
    assert job.result(LONGEST) == 1024
    assert interrupted_jobs() == []


def test_a_client_that_was_killed_before_the_submission_has_no_job() -> None:
    run_killed_client("before")
    assert interrupted_jobs() == []
    with pytest.raises(UnknownAppException):
        Job.from_handle("local_cwd://torchx/pow-1")
    [submission] = unsettled()
    [unused] = unused_functions(PruneQuery(older_than=0))
    assert unused.name == submission.folder
    assert unused.remove is not None
    unused.remove()
    assert interrupted_jobs() == []
    assert unsettled() == []


def test_a_folder_stays_if_the_scheduler_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_killed_client("before")

    def fail(*args: object) -> None:
        raise errors.BackendError("no connection")

    with monkeypatch.context() as patch:
        patch.setattr(default_runner(), "list", fail)
        [found] = unused_functions(PruneQuery(older_than=0))
    assert found.remove is None
    assert "local_cwd cannot tell whether it has the app pow-" in found.reason
    assert "no connection" in caplog.text


def test_the_pruner_finds_old_folders_of_ended_jobs_only(tmp_path: Path) -> None:
    assert [plugin.name for plugin in torchx_pruners()] == ["functions"]
    ended = submit(int)
    mapped = Executor(folder=tmp_path / "other").map(int, ["1", "2"])
    running = submit(time.sleep, 1200)
    ended.result(LONGEST)
    list(mapped.results(LONGEST))
    assert list(unused_functions(PruneQuery())) == []
    found = {item.name: item for item in unused_functions(PruneQuery(older_than=0))}
    group = os.path.dirname(running.folder)
    assert set(found) == {os.path.dirname(ended.folder), mapped.folder, group}
    assert found[group].remove is None
    assert found[group].reason == f"job 0 of {running.handle} has not ended"
    for item in found.values():
        if item.remove is not None:
            item.remove()
    assert not os.path.exists(ended.folder)
    assert not os.path.exists(mapped.folder)
    assert os.path.exists(running.folder)
    with pytest.raises(UnknownAppException):
        JobGroup.from_handle(mapped.handle)
    running.cancel()


def test_a_folder_that_was_used_since_the_query_stays() -> None:
    job = submit(int)
    job.result(LONGEST)
    [found] = unused_functions(PruneQuery(older_than=0))
    Path(job.folder, "new").touch()
    assert found.remove is not None
    with pytest.raises(errors.BackendError, match="was not removed"):
        found.remove()
    assert job.result() == 0
    assert os.path.exists(job.folder)
