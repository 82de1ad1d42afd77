"""Jobs on a real Slurm: how they run, end, and are described afterwards."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import slurm as service
from slurm_jobs import (
    TINY,
    Cluster,
    app,
    wait_for,
    wait_until_forgotten,
    with_and_without_accounting,
)

import patience
from torchx_kit.batch.errors import UnreachableError
from torchx_sched_slurm.job_files.records import SlurmEntry
from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppDef, AppState, Resource, RetryPolicy, Role, macros


def submit(scheduler: SlurmScheduler, job: AppDef, **cfg: object) -> str:
    return scheduler.submit(job, cfg)


def lines(
    scheduler: SlurmScheduler, app_id: str, role: str = "main", k: int = 0, **options: object
) -> list[str]:
    return list(scheduler.log_iter(app_id, role, k, **options))


class TestOneRole:
    def test_job_has_one_component(self, scheduler: SlurmScheduler) -> None:
        app_id = submit(scheduler, app("sleep 86400", num_replicas=4))
        wait_for(scheduler, app_id, AppState.RUNNING)
        out = subprocess.run(
            ["squeue", "-h", "-j", app_id, "-o", "%i %D %j"], capture_output=True, text=True
        ).stdout
        assert out.split("\n") == [f"{app_id} 4 app", ""]

    def test_replicas_share_nodes(self, scheduler: SlurmScheduler) -> None:
        job = app("echo $SLURMD_NODENAME", num_replicas=7)
        app_id = submit(scheduler, job, replicas_per_node=2)
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        nodes = {lines(scheduler, app_id, k=k)[0] for k in range(7)}
        assert len(nodes) == 4

    def test_job_with_too_many_replicas_has_a_reason(self, scheduler: SlurmScheduler) -> None:
        app_id = submit(scheduler, app("true", num_replicas=5))
        found = wait_for(scheduler, app_id, AppState.PENDING, until=lambda f: "Partition" in f.msg)
        assert "replicas_per_node" in found.msg
        [role] = found.roles_statuses
        assert role.replicas[4].reason == found.msg

    @pytest.mark.usefixtures("long_memory")
    def test_script_submitted_by_hand(self, scheduler: SlurmScheduler, work: Path) -> None:
        info = scheduler.submit_dryrun(app("echo by hand", num_replicas=2), {})
        Path("mine.sh").write_text(info.request.materialize())
        done = subprocess.run(["sbatch", "--parsable", "mine.sh"], capture_output=True, text=True)
        app_id = done.stdout.strip()
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert lines(scheduler, app_id, k=1) == ["by hand\n"]
        assert [len(role.replicas) for role in found.roles_statuses] == [2]

    def test_files_with_secrets_are_private(self, scheduler: SlurmScheduler, work: Path) -> None:
        app_id = submit(scheduler, app("true", env={"HF_TOKEN": "hush"}))
        wait_for(scheduler, app_id)
        holders = [
            path
            for path in work.rglob("*")
            if path.is_file() and "hush" in path.read_text(errors="replace")
        ]
        assert holders
        for path in holders:
            private = stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
            assert private or stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
        info = scheduler.submit_dryrun(app("true", env={"HF_TOKEN": "hush"}), {})
        assert "hush" not in str(info)


class TestSeveralRoles:
    def test_different_roles_make_the_job_heterogeneous(self, scheduler: SlurmScheduler) -> None:
        script = "echo $0 $1 $2 $TORCHX_RANK0_HOST"
        roles = [
            Role(
                name,
                image="",
                entrypoint="bash",
                args=["-c", script, name, macros.replica_id, macros.app_id],
                resource=Resource(cpu=cpu, gpu=0, memMB=100),
                num_replicas=count,
            )
            for name, cpu, count in (("head", 2, 1), ("worker", 1, 2))
        ]
        info = scheduler.submit_dryrun(AppDef("mixed", roles), {})
        assert info.request.materialize().count("#SBATCH hetjob") == 1
        app_id = scheduler.schedule(info)
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED, found
        [head], [worker] = (lines(scheduler, app_id, *one) for one in (("head",), ("worker", 1)))
        assert head.startswith(f"head 0 {app_id} ")
        assert worker.split() == ["worker", "1", app_id, head.split()[3]]
        assert {app.app_id for app in scheduler.list()} >= {app_id}
        assert f"{int(app_id) + 1}" not in {app.app_id for app in scheduler.list()}

    def test_failed_role_ends_the_other(self, scheduler: SlurmScheduler) -> None:
        roles = [
            Role(name, image="", entrypoint="bash", args=["-c", line], resource=TINY)
            for name, line in (("bad", "sleep 1; exit 7"), ("good", "sleep 86400"))
        ]
        app_id = submit(scheduler, AppDef("gang", roles))
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.FAILED
        assert "bad/0 on n" in found.msg
        assert "exit code 7" in found.msg
        by_role = {role.role: role.replicas[0] for role in found.roles_statuses}
        assert by_role["bad"].exit_code == 7
        wait_until_forgotten(scheduler_cluster(scheduler), app_id)
        again = scheduler.describe(app_id)
        assert again is not None
        assert again.msg == found.msg


def scheduler_cluster(scheduler: SlurmScheduler) -> Cluster:
    return Cluster(Path(), {"SLURM_CONF": os.environ["SLURM_CONF"]}, False)


class TestEndedJobs:
    @with_and_without_accounting
    def test_status_after_jobs_have_left_the_queue(
        self, scheduler: SlurmScheduler, cluster: Cluster
    ) -> None:
        ends = {
            "exit 0": (AppState.SUCCEEDED, ""),
            "exit 3": (AppState.FAILED, "exit code 3"),
            "kill -9 $$": (AppState.FAILED, "killed by signal 9"),
        }
        app_ids = {line: submit(scheduler, app(line)) for line in ends}
        # no query before the controller forgets the jobs, so that the index has no states
        for app_id in app_ids.values():
            wait_until_forgotten(cluster, app_id)
        another = create_scheduler("another")
        listed = {each.app_id: each for each in another.list()}
        for line, (state, reason) in ends.items():
            found = another.describe(app_ids[line])
            assert found is not None
            assert (found.state, reason in found.msg) == (state, True), found
            assert (listed[app_ids[line]].state, listed[app_ids[line]].name) == (state, "app")

    @with_and_without_accounting
    def test_cancelled_job(self, scheduler: SlurmScheduler, cluster: Cluster) -> None:
        waits = submit(scheduler, app("true", num_replicas=5))
        runs = submit(scheduler, app("echo up; sleep 86400", num_replicas=2, max_retries=2))
        wait_for(scheduler, waits, AppState.PENDING)
        wait_for(
            scheduler,
            runs,
            AppState.RUNNING,
            until=lambda f: all(r.state == AppState.RUNNING for r in f.roles_statuses[0].replicas),
        )
        scheduler.cancel(waits)
        subprocess.run(["scancel", runs], check=True)  # cancelled without TorchX
        assert wait_for(scheduler, waits).state == AppState.CANCELLED
        assert wait_for(scheduler, runs).state == AppState.CANCELLED
        wait_until_forgotten(cluster, waits)
        wait_until_forgotten(cluster, runs)
        for app_id in (waits, runs):
            found = create_scheduler("another").describe(app_id)
            assert found is not None
            assert found.state == AppState.CANCELLED
        assert lines(scheduler, runs, k=1) == ["up\n"]

    def test_reused_job_number(self, scheduler: SlurmScheduler) -> None:
        """An index entry of another job with the same number is ignored."""
        job_id = submit(scheduler, app("exit 1"))
        wait_for(scheduler, job_id)
        done = subprocess.run(
            ["sbatch", "--parsable", "--comment=somebody", "--wrap", "sleep 86400"],
            capture_output=True,
            text=True,
        )
        other = done.stdout.strip()
        entry = scheduler._index.get(job_id)
        assert isinstance(entry, SlurmEntry)
        scheduler._index.put(replace(entry, app_id=other))
        found = scheduler.describe(other)
        assert found is not None
        assert found.state in (AppState.PENDING, AppState.RUNNING)
        assert found.roles_statuses == []


class TestRetries:
    def test_job_is_requeued_until_it_succeeds(self, scheduler: SlurmScheduler) -> None:
        line = 'echo "attempt ${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" = 1 ]'
        app_id = submit(scheduler, app(line, max_retries=3))
        found = wait_for(scheduler, app_id)
        assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
        assert lines(scheduler, app_id) == ["attempt 0\n", "attempt 1\n"]

    @pytest.mark.gate
    def test_requeue_keeps_the_output_of_setup(
        self, scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SBATCH_OPEN_MODE", "truncate")
        setup = ['echo "setup ${SLURM_RESTART_COUNT:-0}"']
        job = app('[ "${SLURM_RESTART_COUNT:-0}" = 1 ]', max_retries=3)
        app_id = submit(scheduler, job, setup=setup)
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        output = Path(f"slurm-{app_id}.out").read_text().splitlines()
        assert [line for line in output if line.startswith("setup")] == ["setup 0", "setup 1"]

    def test_requeued_job_is_cancelled(self, scheduler: SlurmScheduler) -> None:
        line = "until [ -e go ]; do sleep 0.1; done; exit 1"
        app_id = submit(scheduler, app(line, max_retries=9))
        wait_for(scheduler, app_id, AppState.RUNNING)
        Path("go").touch()
        wait_for(scheduler, app_id, AppState.PENDING)
        scheduler.cancel(app_id)
        assert wait_for(scheduler, app_id).state == AppState.CANCELLED

    def test_replica_is_restarted_alone(self, scheduler: SlurmScheduler) -> None:
        line = 'echo started; [ "$0" = 0 ] || { [ -e "again$0" ] || { touch "again$0"; exit 5; }; }'
        job = app(
            line,
            macros.replica_id,
            num_replicas=2,
            max_retries=2,
            retry_policy=RetryPolicy.REPLICA,
        )
        app_id = submit(scheduler, job)
        found = wait_for(scheduler, app_id)
        assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 0)
        assert [r.restarts for r in found.roles_statuses[0].replicas] == [0, 1]
        assert lines(scheduler, app_id, k=0) == ["started\n"]
        assert lines(scheduler, app_id, k=1) == ["started\n"] * 2


class TestController:
    def test_restart_while_a_job_runs(self, own: Cluster) -> None:
        line = "echo one; until [ -e go ]; do sleep 0.1; done; echo two"
        scheduler = create_scheduler("test", patience=60.0)
        app_id = submit(scheduler, app(line, num_replicas=2))
        wait_for(scheduler, app_id, AppState.RUNNING)
        # slurmctld saves changes every few seconds; a running job's record has its nodes.
        saved = own.folder / "state" / "job_state"
        patience.wait_for(lambda: saved.exists() and b"n[1-2]" in saved.read_bytes())
        service.kill_daemon(own.folder, "slurmctld")
        pid = os.fork()
        if pid == 0:  # restarts the controller during the queries
            try:
                time.sleep(3)
                service.start_controller(own.folder)
            finally:
                os._exit(0)
        wait_for(scheduler, app_id, AppState.RUNNING)
        os.waitpid(pid, 0)
        Path("go").touch()
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        for k in range(2):
            assert lines(scheduler, app_id, k=k) == ["one\n", "two\n"]

    def test_submission_while_the_controller_is_down(self, own: Cluster) -> None:
        scheduler = create_scheduler("test", patience=60.0)
        service.kill_daemon(own.folder, "slurmctld")
        pid = os.fork()
        if pid == 0:
            try:
                time.sleep(2)
                service.start_controller(own.folder)
            finally:
                os._exit(0)
        app_id = submit(scheduler, app("echo once"))
        os.waitpid(pid, 0)
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        assert [each.app_id for each in scheduler.list()] == [app_id]

    def test_submission_fails_if_the_controller_stays_down(self, own: Cluster) -> None:
        scheduler = create_scheduler("test", timeout=10.0, patience=3.0)
        service.kill_daemon(own.folder, "slurmctld")
        with pytest.raises(
            UnreachableError, match="may have accepted jobs: torchx cancel"
        ) as caught:
            submit(scheduler, app("true"))
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 3
        service.start_controller(own.folder)
        time.sleep(1)
        assert scheduler.list() == []


class TestRefused:
    @pytest.mark.parametrize(
        ("cfg", "message"),
        [
            ({"partition": "nope"}, "invalid partition specified: nope"),
            ({"constraint": "nothing"}, "Invalid feature specification"),
            ({"nodelist": "n9"}, "Invalid node name specified"),
        ],
    )
    def test_error_has_slurms_message_once(
        self, scheduler: SlurmScheduler, work: Path, cfg: dict[str, str], message: str
    ) -> None:
        with pytest.raises(Exception, match=message) as caught:
            submit(scheduler, app("true"), **cfg)
        text = str(caught.value)
        assert text.count(message) == 1
        assert "\n" not in text
        assert caught.value.exit_code == 2  # type: ignore[attr-defined]
        assert list(work.iterdir()) == []  # no files are left

    def test_request_for_too_much_memory(self, scheduler: SlurmScheduler) -> None:
        job = app("true", resource=Resource(cpu=1, gpu=0, memMB=10**6))
        with pytest.raises(Exception, match="Memory specification can not be satisfied"):
            submit(scheduler, job)

    @pytest.mark.usefixtures("long_memory")
    def test_directives_with_special_characters(self, scheduler: SlurmScheduler) -> None:
        app_id = submit(
            scheduler,
            app("true"),
            constraint="cpu&small",
            comment='it\'s "mine" & $HOME % #1',
            extra=["nice=7", "exclusive"],
            time="0-01",
        )
        out = subprocess.run(
            ["squeue", "-h", "-t", "all", "-j", app_id, "-o", "%k|%f|%l|%h"],
            capture_output=True,
            text=True,
        ).stdout
        comment, features, limit, _shared = out.strip().rsplit("|", 3)
        assert comment == 'site=test it\'s "mine" & $HOME % #1'
        assert (features, limit) == ("cpu&small", "1:00:00")
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED

    def test_job_dir_that_is_removed(self, scheduler: SlurmScheduler, tmp_path: Path) -> None:
        folder = tmp_path / "job"
        app_id = submit(scheduler, app("echo no"), job_dir=str(folder), extra=["hold"])
        assert "JobHeldUser" in wait_for(scheduler, app_id, AppState.PENDING).msg
        shutil.rmtree(folder)
        subprocess.run(["scontrol", "release", app_id], check=True)
        assert wait_for(scheduler, app_id).state == AppState.FAILED
        assert not folder.exists()
        with pytest.raises(Exception, match="no log at"):
            lines(scheduler, app_id)

    def test_job_dir_has_the_logs_and_is_tracked(
        self, scheduler: SlurmScheduler, work: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "my jobs"
        app_id = submit(scheduler, app("pwd"), job_dir=str(folder))
        wait_for(scheduler, app_id)
        assert lines(scheduler, app_id) == [f"{folder}\n"]
        assert f"{app_id} = {folder}\n" in (work / ".torchxslurmjobdirs").read_text()
        assert (folder / f"slurm-{app_id}-main-0.out").exists()

    def test_workspace_is_copied_to_job_dir(
        self, scheduler: SlurmScheduler, work: Path, tmp_path: Path
    ) -> None:
        from torchx_specs import Workspace

        (work / "hello.txt").write_text("from the workspace\n")
        job = app("cat hello.txt; echo $0", macros.img_root)
        job.roles[0].workspace = Workspace({str(work): ""})
        folder = tmp_path / "copy"
        app_id = submit(scheduler, job, job_dir=str(folder))
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        assert lines(scheduler, app_id) == ["from the workspace\n", f"{folder}\n"]


def test_ddp_on_four_nodes(scheduler: SlurmScheduler, work: Path, repository: Path) -> None:
    from torchx_components import dist

    script = repository / "examples" / "train_ddp.py"
    job = dist.ddp("--epochs", "3", script=str(script), j="4x1", cpu=1, memMB=500)
    job.roles[0].env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    app_id = submit(scheduler, job)
    found = wait_for(scheduler, app_id)
    out = [line for k in range(4) for line in lines(scheduler, app_id, job.roles[0].name, k)]
    assert found.state == AppState.SUCCEEDED, "".join(out)
    assert sum("training with 4 processes" in line for line in out) == 1
    assert {str(r.node) for r in found.roles_statuses[0].replicas} == {"n1", "n2", "n3", "n4"}
