"""Comments of jobs, which belong to users and sites: TorchX neither changes nor needs them.

Every cluster of these tests has a ``job_submit`` plugin that changes all comments.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from slurm_jobs import app, every_cluster, wait_for

import patience
from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppDef, AppState
from torchx_specs.schedulers import DescribeAppResponse

pytestmark = pytest.mark.usefixtures("long_memory")


def comment(app_id: str) -> str:
    command = ["squeue", "-h", "-t", "all", "-j", app_id, "-o", "%k"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")


def has_roles_and_logs(scheduler: SlurmScheduler, app_id: str) -> DescribeAppResponse:
    found = scheduler.describe(app_id)
    assert found is not None
    assert [(role.role, len(role.replicas)) for role in found.roles_statuses] == [("main", 2)]
    for k in range(2):
        # A replica is RUNNING before its program has written anything.
        log = patience.wait_for(lambda k=k: list(scheduler.log_iter(app_id, "main", k)))
        assert log == ["up\n"]
    return found


def start(scheduler: SlurmScheduler, job: AppDef, **cfg: object) -> str:
    app_id = scheduler.submit(job, cfg)
    wait_for(
        scheduler,
        app_id,
        AppState.RUNNING,
        until=lambda f: all(r.state == AppState.RUNNING for r in f.roles_statuses[0].replicas),
    )
    return app_id


@every_cluster
@pytest.mark.parametrize("text", ['{"project": "x", "tags": ["a", "b"]}', "it's 100% mine", None])
def test_comment_is_left_as_it_is(scheduler: SlurmScheduler, text: str | None) -> None:
    app_id = scheduler.submit(app("true"), {"comment": text} if text else {})
    assert comment(app_id) == f"site=test {text or ''}".rstrip(" ") or "site=test "


@every_cluster
def test_job_with_another_comment_has_roles_and_logs(scheduler: SlurmScheduler) -> None:
    app_id = start(scheduler, app("echo up; sleep 86400", num_replicas=2))
    change = ["scontrol", "update", f"JobId={app_id}", 'Comment={"by": "somebody else"}']
    subprocess.run(change, check=True)
    assert has_roles_and_logs(scheduler, app_id).state == AppState.RUNNING
    scheduler.cancel(app_id)
    wait_for(scheduler, app_id)
    assert has_roles_and_logs(scheduler, app_id).state == AppState.CANCELLED


@every_cluster
def test_job_of_another_machine_has_roles_and_logs(
    scheduler: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine, whose index lacks the job, the path of the script leads to the record."""
    app_id = start(scheduler, app("echo up; sleep 86400", num_replicas=2))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    other = create_scheduler("other")
    assert has_roles_and_logs(other, app_id).state == AppState.RUNNING
    scheduler.cancel(app_id)
    wait_for(other, app_id)
    assert has_roles_and_logs(other, app_id).state == AppState.CANCELLED
