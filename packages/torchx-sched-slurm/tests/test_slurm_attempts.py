"""Tests of the options ``requeue`` and ``resume_dir``: the script, and the record of attempts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from slurm_requests import directives, role, script_text

from torchx_kit.batch.entries import RoleEntry
from torchx_kit.hosts.local import LocalHost
from torchx_sched_slurm.describe import SlurmApp
from torchx_sched_slurm.job_files.records import SlurmEntry, SlurmRecord
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_sched_slurm.system import Slurm
from torchx_specs import AppState, RequestError, RetryPolicy
from torchx_specs.schedulers import DescribeAppResponse


def described(folder: Path, attempts: str, **files: str) -> DescribeAppResponse:
    """Return the description of a job that the queue does not know, from its record."""
    for name, text in {"attempts": attempts, **files}.items():
        (folder / name).write_text(text)
    entry = SlurmEntry("5", "app", str(folder), str(folder), [RoleEntry("main", "main", 1, ["5"])])
    return SlurmApp(Slurm(), entry, {}, SlurmRecord(LocalHost(), str(folder))).describe({})


class TestScript:
    def test_job_without_the_options_has_no_attempts(self, scheduler: SlurmScheduler) -> None:
        made = script_text(scheduler, role())
        assert "TORCHX_ATTEMPT" not in made
        assert "--signal" not in directives(made)[0]

    @pytest.mark.parametrize("cfg", [{"requeue": True}, {"resume_dir": "runs/${app_id}"}])
    def test_job_is_signalled_before_its_time_limit(
        self, scheduler: SlurmScheduler, cfg: dict[str, object]
    ) -> None:
        made = script_text(scheduler, role(), **cfg)
        assert directives(made)[0]["--signal"] == "B:USR1@120"
        assert "SIGUSR1=100,SIGTERM=" in made
        assert ("export TORCHX_RESUME_DIR=" in made) is ("resume_dir" in cfg)

    def test_signal_of_the_user_decides_how_long_replicas_have(
        self, scheduler: SlurmScheduler
    ) -> None:
        made = script_text(scheduler, role(), requeue=True, signal="B:USR1@600")
        assert directives(made)[0]["--signal"] == "B:USR1@600"
        assert "SIGUSR1=580,SIGTERM=" in made
        assert "SIGUSR1=15,SIGTERM=" in script_text(
            scheduler, role(), requeue=True, signal="B:USR1@30"
        )

    def test_failed_replica_is_not_restarted_in_place(self, scheduler: SlurmScheduler) -> None:
        one = role(max_retries=3, retry_policy=RetryPolicy.REPLICA)
        made = script_text(scheduler, one, requeue=True)
        assert '"1 0 trainer"' in made
        assert "TORCHX_MAX_RETRIES=3" in made

    def test_resume_folder_is_quoted(self, scheduler: SlurmScheduler) -> None:
        made = script_text(scheduler, role(), resume_dir="/a b/$x/${app_id}")
        assert "export TORCHX_RESUME_DIR='/a b/$x/'\"$SLURM_JOB_ID\"\n" in made


class TestOptions:
    def test_no_requeue_contradicts_requeue(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(RequestError, match="'no-requeue' contradicts"):
            script_text(scheduler, role(), requeue=True, extra=["no-requeue"])

    def test_resume_folder_of_others_is_refused(
        self, scheduler: SlurmScheduler, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o777)
        with pytest.raises(
            RequestError, match=r"option resume_dir: .* other users can write to it"
        ):
            script_text(scheduler, role(), resume_dir=str(tmp_path))


class TestRecord:
    def test_attempts_have_times_reasons_and_steps(self, tmp_path: Path) -> None:
        text = (
            "start 0 100 - /shared/a b\nend time-limit 200 40\n"
            "start 1 300 40 /shared/a b\nend succeeded 400 99\n"
        )
        found = described(tmp_path, text, outcome="SUCCEEDED 0 1 400\n")
        assert found.state == AppState.SUCCEEDED
        assert [(a.number, a.reason, a.resume_step, a.committed_step) for a in found.attempts] == [
            (0, "time-limit", None, 40),
            (1, "succeeded", 40, 99),
        ]
        times = [(a.started, a.ended) for a in found.attempts]
        assert [(b.timestamp(), e.timestamp()) for b, e in times if b and e] == [
            (100, 200),
            (300, 400),
        ]

    def test_running_attempt_has_the_newest_step_now(self, tmp_path: Path) -> None:
        (tmp_path / "resume" / "step-7").mkdir(parents=True)
        text = f"start 0 100 - {tmp_path}/resume\n"
        (attempt,) = described(tmp_path, text, started="0 5 100\n").attempts
        assert (attempt.committed_step, attempt.resume_step) == (7, None)

    def test_app_is_pending_between_attempts(self, tmp_path: Path) -> None:
        text = "start 0 100 - \nend preempted 200 -\n"
        outcome = f"REQUEUED 143 0 {time.time():.0f}\n"
        found = described(tmp_path, text, outcome=outcome)
        assert found.state == AppState.PENDING
        assert found.msg == "requeued: attempt 1 ended: preempted"
        assert [attempt.reason for attempt in found.attempts] == ["preempted"]

    @pytest.mark.parametrize(("refused", "message"), [("no step\n", "no step"), ("-\n", "")])
    def test_job_that_does_not_start_again_says_why(
        self, tmp_path: Path, refused: str, message: str
    ) -> None:
        text = "start 0 1 8 /r\nend requested 2 8\n"
        found = described(tmp_path, text, outcome="FAILED 75 2 200\n", refused=refused)
        assert found.state == AppState.FAILED
        assert found.msg == (message or "exit code 75")

    def test_lines_that_are_not_complete_are_left_out(self, tmp_path: Path) -> None:
        found = described(tmp_path, "end failed 7 -\nstart 0 1\nstart x\n", started="0 5 100\n")
        assert found.attempts == []
