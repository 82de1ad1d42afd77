"""Snapshots of workspaces, in dry runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from slurm_requests import role

from torchx_kit.workspace import host_dir
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, Workspace
from torchx_specs.errors import WorkspaceError


def planned(scheduler: SlurmScheduler, folder: Path, **cfg: object) -> str:
    """Return the snapshot that a dry run plans for a workspace, or an empty string."""
    app = AppDef("app", [role(image="base")])
    app.roles[0].workspace = Workspace({str(folder): ""})
    scheduler.build_workspaces(app.roles, cfg)
    return str(scheduler.submit_dryrun(app, cfg).request.replicas["trainer"].snapshot)


def test_dry_run_plans_a_snapshot_and_writes_nothing(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("1")
    first = planned(scheduler, tmp_path)
    assert os.path.dirname(first) == f"{tmp_path}/.torchx-slurm/workspaces"
    assert sorted(os.listdir(tmp_path)) == ["a"]
    (tmp_path / "a").write_text("2")
    assert planned(scheduler, tmp_path) != first


def test_logs_and_records_do_not_change_the_snapshot(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("1")
    first = planned(scheduler, tmp_path)
    for name in ("slurm-7-main-0.out", "slurm-7.out", ".torchxslurmjobdirs", ".torchx-slurm/m/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("secret")
    (tmp_path / ".torchxignore").write_text("")
    assert planned(scheduler, tmp_path) != first  # the ignore file itself is copied
    (tmp_path / ".torchxignore").unlink()
    assert planned(scheduler, tmp_path) == first


def test_links_out_of_the_workspace_are_followed_on_request(
    scheduler: SlurmScheduler, tmp_path: Path
) -> None:
    project, target = tmp_path / "project", tmp_path / "data.txt"
    project.mkdir()
    (project / "data.txt").symlink_to(target)
    target.write_text("1")
    with pytest.raises(WorkspaceError, match="set the option follow_links=True"):
        planned(scheduler, project)
    first = planned(scheduler, project, follow_links=True)
    target.write_text("2")
    assert planned(scheduler, project, follow_links=True) not in ("", first)


def test_large_workspace_is_an_error(
    scheduler: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_dir, "MAX_SIZE", 10)
    (tmp_path / "data").write_text("x" * 11)
    with pytest.raises(WorkspaceError, match=r"a snapshot has at most.*\.torchxignore"):
        planned(scheduler, tmp_path)
    assert planned(scheduler, tmp_path, job_dir=str(tmp_path / "copy")) == ""


def test_home_directory_is_not_copied(
    scheduler: SlurmScheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert planned(scheduler, tmp_path) == ""
    assert f"{tmp_path} is not copied" in caplog.text


@pytest.mark.parametrize("container", ["pyxis", "apptainer"])
def test_container_keeps_its_image(
    scheduler: SlurmScheduler, tmp_path: Path, container: str
) -> None:
    (tmp_path / "a").write_text("1")
    app = AppDef("app", [role(image="pytorch/pytorch:2")])
    app.roles[0].workspace = Workspace({str(tmp_path): ""})
    scheduler.build_workspaces(app.roles, {"container": container})
    request = scheduler.submit_dryrun(app, {"container": container}).request
    assert "pytorch/pytorch:2" in request.materialize()
    assert request.replicas["trainer"].snapshot
