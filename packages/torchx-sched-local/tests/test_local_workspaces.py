"""Tests of workspaces: a job runs in a copy of every workspace but the working directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import fsspec
import pytest
from local_helpers import finish, lines, sh

from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_runner import Runner
from torchx_sched_local.image_providers import CWDImageProvider
from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs import AppDef, AppState
from torchx_specs.errors import RequestError, WorkspaceError
from torchx_specs.schedulers import DescribeAppResponse
from torchx_specs.workspace import Workspace

SHOW = "pwd; cat *.txt; ./program"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("data\n")
    (folder / "ignored").touch()
    (folder / ".torchxignore").write_text("ignored\n")
    (folder / "program").write_text("#!/bin/sh\ntest -e ignored || echo ran\n")
    (folder / "program").chmod(0o755)
    return folder


def run(
    scheduler: LocalScheduler, workspace: Workspace, script: str = SHOW, **cfg: object
) -> tuple[DescribeAppResponse, list[str]]:
    info = scheduler.submit_dryrun(AppDef("app", [sh(script, workspace=workspace)]), cfg)
    app = finish(scheduler, scheduler.schedule(info))
    return app, lines(scheduler, app.app_id)


@pytest.mark.parametrize("detach", [False, True])
def test_a_job_runs_in_a_copy_that_is_deleted_with_the_app(
    scheduler: LocalScheduler, project: Path, detach: bool
) -> None:
    app, (folder, *others) = run(scheduler, Workspace({str(project): ""}), detach=detach)
    assert app.state == AppState.SUCCEEDED, app
    assert others == ["data\n", "ran\n"]
    copy = Path(folder.strip())
    assert copy.is_relative_to(scheduler.describe_native(app.app_id).request.log_dir)
    assert (copy / "program").stat().st_mode & 0o777 == 0o755
    scheduler.delete(app.app_id)
    assert not copy.exists()
    assert (project / "data.txt").exists()


@pytest.mark.parametrize("form", ["{}", "file://{}", "{}/."])
@pytest.mark.parametrize("kind", [Workspace, WorkingDirectory])
def test_a_job_runs_in_the_working_directory_itself(
    scheduler: LocalScheduler,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    kind: type[Workspace],
) -> None:
    monkeypatch.chdir(project)
    _, (folder, *_) = run(scheduler, kind({form.format(project): ""}))
    assert folder == f"{project}\n"


def test_folders_and_urls_are_joined(scheduler: LocalScheduler, project: Path) -> None:
    with fsspec.open("memory://local-workspaces/src/more.txt", "w") as file:
        file.write("more\n")
    workspace = Workspace({str(project): "", "memory://local-workspaces": "lib"})
    _, found = run(scheduler, workspace, "cat data.txt lib/src/more.txt")
    assert found == ["data\n", "more\n"]


def test_each_role_has_its_own_workspace(
    scheduler: LocalScheduler, project: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "data.txt").write_text("other\n")
    roles = [
        sh("cat data.txt", "one", workspace=Workspace({str(project): ""})),
        sh("cat '${img_root}/data.txt'", "two", workspace=Workspace({str(other): ""})),
        sh("pwd", "three"),
    ]
    app_id = scheduler.schedule(scheduler.submit_dryrun(AppDef("app", roles), {}))
    finish(scheduler, app_id)
    assert lines(scheduler, app_id, "one") == ["data\n"]
    assert lines(scheduler, app_id, "two") == ["other\n"]
    assert lines(scheduler, app_id, "three") == [f"{os.getcwd()}\n"]


def test_the_elements_of_an_array_share_a_copy(scheduler: LocalScheduler, project: Path) -> None:
    infos = [
        scheduler.submit_dryrun(
            AppDef(
                "app", [sh(f"pwd; cat data.txt; #{k}", workspace=Workspace({str(project): ""}))]
            ),
            {},
        )
        for k in range(3)
    ]
    found = []
    for app_id in scheduler.app_arrays.submit(infos):
        finish(scheduler, app_id)
        found.append(tuple(lines(scheduler, app_id)))
    assert found[0][1] == "data\n"
    assert len(found) == 3
    assert len(set(found)) == 1


def test_a_workspace_that_does_not_exist_is_an_error_of_the_dry_run(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    with pytest.raises(WorkspaceError, match="does not exist"):
        run(scheduler, Workspace({str(tmp_path / "missing"): ""}))


def test_a_failed_copy_leaves_no_app(scheduler: LocalScheduler, project: Path) -> None:
    info = scheduler.submit_dryrun(
        AppDef("app", [sh("true", workspace=Workspace({str(project): ""}))]), {}
    )
    (project / "link").symlink_to("/etc/passwd")
    with pytest.raises(WorkspaceError, match="outside"):
        scheduler.schedule(info)
    assert not os.path.exists(info.request.log_dir)
    assert scheduler.list() == []


def test_options_of_a_copy(scheduler: LocalScheduler, project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("linked\n")
    (project / "link.txt").symlink_to(tmp_path / "elsewhere")
    (project / ".gitignore").write_text("data.txt\n")
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    options = {"follow_links": True, "gitignore": True}
    _, found = run(scheduler, Workspace({str(project): ""}), "cat *.txt", **options)
    assert found == ["linked\n"]


def test_a_copy_that_another_user_could_replace_is_refused(
    scheduler: LocalScheduler, project: Path, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(RequestError, match=r"other users can write to it.*log_dir"):
        run(scheduler, Workspace({str(project): ""}), log_dir=str(shared))
    assert not list(shared.rglob("data.txt"))
    shared.chmod(0o1777)  # others cannot rename the folders in it
    app, _ = run(scheduler, Workspace({str(project): ""}), log_dir=str(shared))
    assert app.state == AppState.SUCCEEDED


@pytest.mark.parametrize("is_subclass", [False, True])
def test_a_subclass_warns_that_it_ignores_the_workspace(
    project: Path, caplog: pytest.LogCaptureFixture, is_subclass: bool
) -> None:
    class Subclass(LocalScheduler):
        pass

    kind = Subclass if is_subclass else LocalScheduler
    with Runner("test", {"some": lambda name, **_: kind(name, CWDImageProvider)}) as runner:
        app = AppDef("app", [sh("pwd")])
        info = runner.dryrun(app, "some", workspace=str(project))
    assert ("workspace of role main is ignored" in caplog.text) == is_subclass
    assert (info.request.role_params["main"][0].cwd == os.getcwd()) == is_subclass
