"""Where a job's code and logs are: ``job_dir``, snapshots of the workspace, ``setup``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from slurm_jobs import app, wait_for

from patience import wait_for as wait_until
from torchx_kit.workspace.host_pruning import unused_trees
from torchx_kit.workspace.pruning import PruneError
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, AppState, Workspace, macros
from torchx_specs.workspace.pruning import Prunable, PruneQuery


def in_workspace(folder: Path, *args: str, **attributes: object) -> AppDef:
    job = app(*args, **attributes)
    job.roles[0].workspace = Workspace({str(folder): ""})
    return job


def lines(scheduler: SlurmScheduler, app_id: str, k: int = 0) -> list[str]:
    return [line.rstrip("\n") for line in scheduler.log_iter(app_id, "main", k)]


def released(scheduler: SlurmScheduler, app_id: str) -> None:
    scheduler.system.run("scontrol", "release", app_id)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED, found


def test_job_does_not_see_an_edit_after_the_submission(
    scheduler: SlurmScheduler, work: Path
) -> None:
    (work / "train.sh").write_text("echo before\n")
    job = in_workspace(work, 'bash train.sh; echo "$0"; pwd', macros.img_root, num_replicas=2)
    app_id = scheduler.submit(job, {"extra": ["hold"]})
    (work / "train.sh").write_text("echo after\n")
    released(scheduler, app_id)
    for k in range(2):
        text, root, folder = lines(scheduler, app_id, k)
        assert (text, root) == ("before", folder)
        assert folder.startswith(f"{work}/.torchx-slurm/workspaces/")
    # the logs are in the directory of the submission, not in the snapshot
    assert (work / f"slurm-{app_id}-main-1.out").exists()


def test_equal_workspaces_share_a_snapshot_without_logs_and_records(
    scheduler: SlurmScheduler, work: Path
) -> None:
    (work / "train.sh").write_text("pwd; ls -A\n")
    (work / ".env").write_text("A=1\n")
    (work / ".torchxignore").write_text("!.env\n")
    folders = set()
    for _ in range(2):
        app_id = scheduler.submit(in_workspace(work, "bash train.sh"), {})
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        folder, *names = lines(scheduler, app_id)
        assert names == [".env", ".torchxignore", "train.sh"]
        folders.add(folder)
    assert len(folders) == 1


def test_snapshot_that_a_job_has_changed_is_not_used_again(
    scheduler: SlurmScheduler, work: Path
) -> None:
    (work / "steps").write_text("0\n")
    seen = []
    for _ in range(2):
        app_id = scheduler.submit(in_workspace(work, "cat steps; echo 1 > steps"), {})
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        seen += lines(scheduler, app_id)
    assert seen == ["0", "0"]


def test_role_without_a_workspace_runs_in_the_snapshot_of_the_others(
    scheduler: SlurmScheduler, work: Path
) -> None:
    job = in_workspace(work, "pwd")
    job.roles.append(app("pwd").roles[0])
    job.roles[1].name = "other"
    app_id = scheduler.submit(job, {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "other")) == list(scheduler.log_iter(app_id, "main"))


def test_parents_of_job_dir_are_created(
    scheduler: SlurmScheduler, work: Path, tmp_path: Path
) -> None:
    (work / "slurm-99999-main-0.out").write_text("an old log")
    (work / "code").write_text("")
    folder = tmp_path / "new" / "parents" / "job"
    app_id = scheduler.submit(in_workspace(work, "pwd; ls"), {"job_dir": str(folder)})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    found = lines(scheduler, app_id)
    assert found[:2] == [str(folder), "code"]
    assert "slurm-99999-main-0.out" not in found


@pytest.mark.parametrize("relative", [False, True])
def test_job_dir_contains_the_jobs_number(
    scheduler: SlurmScheduler, work: Path, tmp_path: Path, relative: bool
) -> None:
    (work / "hello").write_text("before\n")
    base = work if relative else tmp_path / "my runs"
    job_dir = f"{'' if relative else f'{base}/'}a/run-${{app_id}}/x"
    job = in_workspace(work, 'pwd; cat hello; echo "$0"', macros.img_root, num_replicas=2)
    app_id = scheduler.submit(job, {"job_dir": job_dir, "extra": ["hold"]})
    (work / "hello").write_text("after\n")
    released(scheduler, app_id)
    folder = f"{base}/a/run-{app_id}/x"
    assert lines(scheduler, app_id, 1) == [folder, "before", folder]
    assert os.path.exists(f"{folder}/slurm-{app_id}-main-1.out")
    assert f"{app_id} = {folder}\n" in (work / ".torchxslurmjobdirs").read_text()


def test_requeued_job_keeps_its_directory(scheduler: SlurmScheduler, work: Path) -> None:
    job = in_workspace(work, 'ls; touch started; [ -n "${SLURM_RESTART_COUNT-}" ]', max_retries=1)
    (work / "code").write_text("")
    app_id = scheduler.submit(job, {"job_dir": "run-${app_id}"})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert [line for line in lines(scheduler, app_id) if line == "started"] == ["started"]


class TestSetup:
    def test_lines_run_before_the_program_in_the_jobs_shell(
        self, scheduler: SlurmScheduler, work: Path
    ) -> None:
        (work / "module.sh").write_text("module() { export LOADED=$2; }\n")
        setup = [f". '{work}/module.sh'", "module load cuda/12", "export X='a  b'"]
        job = app('echo "$LOADED" "$X" "$Y"', num_replicas=2, env={"Y": "mine"})
        app_id = scheduler.submit(job, {"setup": setup})
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        for k in range(2):
            assert lines(scheduler, app_id, k) == ["cuda/12 a  b mine"]


class TestSurroundingJob:
    @pytest.fixture
    def inside(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        monkeypatch.setenv("SLURM_MEM_PER_CPU", "17")
        monkeypatch.setenv("SBATCH_PARTITION", "two")

    @pytest.mark.usefixtures("inside")
    def test_its_variables_do_not_reach_the_job(self, scheduler: SlurmScheduler) -> None:
        job = app("echo $SLURM_JOB_PARTITION ${SLURM_MEM_PER_CPU-unset}")
        app_id = scheduler.submit(job, {})
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        assert lines(scheduler, app_id) == ["main unset"]

    @pytest.mark.usefixtures("inside", "long_memory")
    def test_its_variables_reach_the_job_if_requested(self, scheduler: SlurmScheduler) -> None:
        app_id = scheduler.submit(app("echo $SLURM_JOB_PARTITION"), {"inherit_env": True})
        wait_for(scheduler, app_id)
        assert (
            scheduler.system.run("squeue", "-h", "-t", "all", "-j", app_id, "-o", "%P") == "two\n"
        )

    def test_variables_outside_of_a_job_are_the_users_defaults(
        self, scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SBATCH_PARTITION", "two")
        app_id = scheduler.submit(app("echo $SLURM_JOB_PARTITION"), {})
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        assert lines(scheduler, app_id) == ["two"]


def found_by_prune() -> dict[str, Prunable]:
    """Return what a prune finds, by the directory in which the jobs run."""
    return {f"{found.name}/files": found for found in unused_trees(PruneQuery(0.0))}


def is_used(found: Prunable) -> bool:
    return found.reason.endswith("and may use it")


def found_without_queued_jobs() -> dict[str, Prunable]:
    """Return the snapshots that a prune finds after ended jobs, too, have left the queue."""
    wait_until(lambda: not any(is_used(one) for one in found_by_prune().values()), pause=0.2)
    return found_by_prune()


def test_prune_keeps_the_snapshots_of_queued_jobs_and_files_that_jobs_wrote(
    scheduler: SlurmScheduler, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = work / "wörk 'n"  # The script contains this path with escapes.
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "train.sh").write_text("pwd; mkdir -p __pycache__; touch __pycache__/m.pyc\n")
    held = scheduler.submit(in_workspace(work, "bash train.sh"), {"extra": ["hold"]})
    (work / ".env").write_text("included by a rule")
    (work / ".torchxignore").write_text("!.env\n")
    (work / "train.sh").write_text("pwd; echo 0.1 > loss\n")
    wrote = scheduler.submit(in_workspace(work, "bash train.sh"), {})
    assert wait_for(scheduler, wrote).state == AppState.SUCCEEDED
    (result,) = lines(scheduler, wrote)
    monkeypatch.chdir("/")  # prune must find the snapshots by the index
    first = found_by_prune()
    assert len(first) == 2
    assert all(is_used(found) and found.remove is None for found in first.values())
    (snapshot,) = first.keys() - {result}
    released(scheduler, held)
    last = found_without_queued_jobs()
    assert last[result].reason == "jobs have written or changed files in it"
    assert last[result].remove is None
    found = last[snapshot]
    assert found.remove is not None
    assert found.size
    found.remove()
    found.remove()  # as a second, concurrent prune would
    assert not os.path.exists(snapshot)
    assert Path(result, "loss").read_text() == "0.1\n"


def test_prune_removes_the_snapshot_of_an_array_whose_tasks_have_ended(
    scheduler: SlurmScheduler, work: Path, tmp_path: Path
) -> None:
    project, gate = tmp_path / "project", tmp_path / "gate"
    project.mkdir()
    (project / "data").write_text("1")
    line = f"test $0 = 0 && exit 1; until [ -e {gate} ]; do sleep 0.2; done"
    apps = [in_workspace(project, line, str(i), name=f"e-{i}-0") for i in range(3)]
    cfg = scheduler._resolve_cfg({})
    for one in apps:
        scheduler.build_workspaces(one.roles, cfg)
    ids = list(scheduler.app_arrays.submit([scheduler.submit_dryrun(one, cfg) for one in apps]))
    wait_for(scheduler, ids[0], AppState.FAILED)
    wait_for(scheduler, ids[1], AppState.RUNNING)
    [found] = found_by_prune().values()
    assert is_used(found)
    assert found.remove is None
    gate.touch()
    for app_id in ids[1:]:
        wait_for(scheduler, app_id, AppState.SUCCEEDED)
    [found] = found_without_queued_jobs().values()
    assert found.reason == ""
    assert found.remove is not None
    found.remove()
    assert not Path(found.name).exists()


def test_submission_keeps_the_snapshot_that_a_prune_is_about_to_remove(
    scheduler: SlurmScheduler, work: Path
) -> None:
    (work / "train.sh").write_text("pwd\n")
    app_id = scheduler.submit(in_workspace(work, "bash train.sh"), {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    (found,) = found_without_queued_jobs().values()
    assert found.remove is not None
    again = scheduler.submit(in_workspace(work, "bash train.sh"), {"extra": ["hold"]})
    with pytest.raises(PruneError, match="a submission has just used it"):
        found.remove()
    released(scheduler, again)
    assert lines(scheduler, again) == [f"{found.name}/files"]


def test_prune_regards_jobs_of_another_home_and_ignores_jobs_of_others_tools(
    scheduler: SlurmScheduler, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work / "train.sh").write_text("pwd\n")
    app_id = scheduler.submit(in_workspace(work, "bash train.sh"), {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    scheduler.system.run("sbatch", "--hold", "--wrap=true")
    (found,) = found_without_queued_jobs().values()
    assert found.remove is not None
    with monkeypatch.context() as patch:
        patch.setenv("TORCHX_HOME", str(work / "home"))
        SlurmScheduler("other").submit(in_workspace(work, "bash train.sh"), {"extra": ["hold"]})
    (found,) = found_by_prune().values()
    assert is_used(found)
