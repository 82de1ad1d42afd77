"""Jobs with the option ``requeue`` on a real Slurm end as undisturbed jobs do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest
import slurm as service
from resilience import WORLD, at_fault, loop, reasons, resilient_loop
from slurm_jobs import (
    PLAIN,
    Cluster,
    app,
    every_release,
    wait_for,
    with_and_without_accounting,
)

from patience import wait_for as wait_until
from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppState
from torchx_specs.schedulers.logs import LogQuery

# Ends with exit code 75 in the first attempt.
ONCE = "echo attempt $TORCHX_ATTEMPT $TORCHX_RESTART_REASON; [ $TORCHX_ATTEMPT = 1 ] || exit 75"


def command(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


class TestWeights:
    @pytest.mark.gate
    @with_and_without_accounting
    @pytest.mark.parametrize(("fault", "reason"), [("request", "requested"), ("failure", "failed")])
    def test_exit_code_starts_the_next_attempt(
        self, scheduler: SlurmScheduler, work: Path, fault: str, reason: str
    ) -> None:
        app_id = scheduler.submit(loop(work, fault, retries=1), {"resume_dir": "resume"})
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert resilient_loop.check(work, WORLD) == ["none", reason]
        assert reasons(found) == [reason, "succeeded"]
        assert found.attempts[-1].committed_step == resilient_loop.END - 1
        assert found.attempts[0].nodes
        text = list(scheduler.app_logs.read(app_id, "rank", 0, LogQuery()))
        assert text == ["--- attempt 2 ---\n"]

    @pytest.mark.gate
    @with_and_without_accounting
    def test_requeue_by_hand(self, scheduler: SlurmScheduler, work: Path) -> None:
        app_id = scheduler.submit(loop(work, "outside"), {"resume_dir": "resume"})
        at_fault(work)
        command("scontrol", "requeue", app_id)
        (work / "go").touch()
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert resilient_loop.check(work, WORLD) == ["none", "requested"]
        assert reasons(found) == ["requested", "succeeded"]

    @with_and_without_accounting
    @pytest.mark.parametrize("partition", ["requeued", "cancelled", "graceful"])
    def test_preemption(self, scheduler: SlurmScheduler, work: Path, partition: str) -> None:
        options = {"resume_dir": "resume", "partition": partition, "replicas_per_node": 2}
        app_id = scheduler.submit(loop(work, "outside"), options)
        at_fault(work)
        line = "until [ -e go ]; do sleep 0.1; done"
        words = ("sbatch", "--parsable", "-p", "urgent", "--exclusive", "-o", "/dev/null")
        command(*words, "--wrap", line)
        wait_until(lambda: "PENDING" in command("squeue", "-h", "-j", app_id, "-o", "%T"))
        (work / "go").touch()
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert resilient_loop.check(work, WORLD) == ["none", "preempted"]
        assert reasons(found) == ["preempted", "succeeded"]

    @pytest.mark.parametrize("cluster", [PLAIN], indirect=True)
    def test_time_limit(self, scheduler: SlurmScheduler, work: Path) -> None:
        """Slurm sends the signal 30 to 60 seconds after the start, when all ranks have begun."""
        options = {"resume_dir": "resume", "time": "2", "signal": "B:USR1@60"}
        app_id = scheduler.submit(loop(work, "limit"), options)
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert resilient_loop.check(work, WORLD) == ["none", "time-limit"]

    def test_node_that_is_down(self, scheduler: SlurmScheduler, work: Path) -> None:
        options = {"nodelist": "n3,n4", "resume_dir": "resume"}
        app_id = scheduler.submit(loop(work, "outside"), options)
        at_fault(work)
        command("scontrol", "update", "nodename=n4", "state=down", "reason=test")
        try:
            wait_until(lambda: "PENDING" in command("squeue", "-h", "-j", app_id, "-o", "%T"))
        finally:
            subprocess.run(["scontrol", "update", "nodename=n4", "state=resume"], check=False)
        (work / "go").touch()
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert resilient_loop.check(work, WORLD) == ["none", "node-failure"]
        assert reasons(found) == ["node-failure", "succeeded"]

    def test_node_that_does_not_answer(
        self, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The replica on the node runs on beside the next attempt, and commits nothing."""
        folder = tmp_path / "cluster"
        variables = service.start(folder, nodes=3, settings="SlurmdTimeout=6")
        try:
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            scheduler = create_scheduler("test")
            app_id = scheduler.submit(loop(work, "outside"), {"resume_dir": "resume"})
            at_fault(work)
            lost = int((work / "pid-1").read_text())
            service.kill_daemon(folder, "slurmd-n2")
            wait_until(lambda: (work / "resume" / "attempts" / "1.0").exists())
            assert psutil.pid_exists(lost)
            (work / "go").touch()
            found = wait_for(scheduler, app_id)
            assert found.state == AppState.SUCCEEDED
            assert resilient_loop.check(work, WORLD) == ["none", "node-failure"]
            assert reasons(found) == ["node-failure", "succeeded"]
            wait_until(lambda: not psutil.pid_exists(lost))
        finally:
            service.stop(folder)


class TestEnds:
    def test_cancel_is_the_end(self, scheduler: SlurmScheduler, work: Path) -> None:
        line = "trap 'exit 75' TERM; touch up; while :; do sleep 0.1; done"
        app_id = scheduler.submit(app(line), {"requeue": True})
        wait_until((work / "up").exists)
        scheduler.cancel(app_id)
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.CANCELLED
        assert reasons(found) == ["cancelled"]

    @every_release
    def test_failures_use_up_max_retries_and_requests_do_not(
        self, scheduler: SlurmScheduler, work: Path
    ) -> None:
        line = "[ $TORCHX_ATTEMPT != 1 ] || exit 75; exit 7"
        app_id = scheduler.submit(app(line, max_retries=1), {"requeue": True})
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.FAILED
        assert reasons(found) == ["failed", "requested", "failed"]

    def test_attempts_without_progress_end_the_job(
        self, scheduler: SlurmScheduler, work: Path
    ) -> None:
        line = 'mkdir -p "$TORCHX_RESUME_DIR/step-8"; exit 75'
        app_id = scheduler.submit(app(line), {"resume_dir": "runs/${app_id}"})
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.FAILED
        assert reasons(found) == ["requested"] * 4
        assert found.attempts[-1].committed_step == 8
        assert "3 attempts in a row have committed no new step" in found.msg
        assert (work / "runs" / app_id).stat().st_mode & 0o777 == 0o700

    def test_requeues_by_hand_without_progress_end_the_job(
        self, scheduler: SlurmScheduler, work: Path
    ) -> None:
        line = 'touch "up$TORCHX_ATTEMPT"; exec sleep 1000'
        app_id = scheduler.submit(app(line), {"resume_dir": "resume"})
        for attempt in range(3):
            wait_until((work / f"up{attempt}").exists)
            command("scontrol", "requeue", app_id)
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.FAILED
        # Slurm may start the job once more, which ends at once
        assert reasons(found) in (["requested"] * 3, ["requested"] * 3 + ["failed"])
        assert "3 attempts in a row have committed no new step" in found.msg

    def test_a_site_without_requeues_does_not_prevent_them(self, own: Cluster, work: Path) -> None:
        conf = own.folder / "slurm.conf"
        conf.write_text(conf.read_text() + "JobRequeue=0\n")
        command("scontrol", "reconfigure")
        wait_until(lambda: "JobRequeue              = 0" in command("scontrol", "show", "config"))
        scheduler = create_scheduler("test")
        found = wait_for(scheduler, scheduler.submit(app(ONCE), {"requeue": True}))
        assert found.state == AppState.SUCCEEDED
        assert reasons(found) == ["requested", "succeeded"]
