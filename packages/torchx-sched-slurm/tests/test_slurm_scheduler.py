"""The scheduler with doubles of Slurm's commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.batch.errors import BatchError, UnreachableError
from torchx_sched_slurm.job_files.job_dirs import record_job_dir
from torchx_sched_slurm.scheduler import create_scheduler
from torchx_specs import AppState

HERE = Path(__file__).parent


class TestScheduler:
    def test_missing_slurm_is_reported(self, command_double: object) -> None:
        scheduler = create_scheduler("x")
        with pytest.raises(
            BatchError, match="Slurm is not installed: there is no command squeue"
        ) as caught:
            scheduler.list()
        assert caught.value.exit_code == 3
        with pytest.raises(BatchError, match="squeue"):
            scheduler.describe("5")

    def test_list_makes_two_requests_if_the_controllers_are_down(self, command_double) -> None:  # type: ignore[no-untyped-def]
        """Each of them takes at most 3 seconds; accounting is not queried."""
        refused = HERE / "recorded" / "squeue-no-controller-22.05.8.err"
        squeue = command_double("squeue", f"cat '{refused}' >&2; exit 1")
        ping = command_double("scontrol", 'echo "Slurmctld(primary) at vm is DOWN"; exit 1')
        sacct = command_double("sacct", "exit 0")
        with pytest.raises(UnreachableError, match="DOWN"):
            create_scheduler("x").list()
        assert [len(path.read_text().splitlines()) for path in (squeue, ping)] == [1, 1]
        assert not sacct.exists()

    def test_describe_queries_one_job(self, command_double) -> None:  # type: ignore[no-untyped-def]
        calls = command_double("squeue", f"cat '{HERE}/recorded/squeue-22.05.8.txt'")
        found = create_scheduler("x").describe("1")
        assert found is not None
        assert found.state == AppState.SUCCEEDED
        [call] = calls.read_text("utf-8").splitlines()
        assert call.startswith("-h -t all -o ")
        assert call.endswith("-j 1")

    def test_command_ends_at_the_time_limit(self, command_double) -> None:  # type: ignore[no-untyped-def]
        command_double("squeue", "exec sleep 300")
        scheduler = create_scheduler("x", timeout=0.3, patience=0.0)
        with pytest.raises(BatchError, match=r"squeue did not end within 0\.3 s"):
            scheduler.describe("1")

    def test_logs_of_a_job_submitted_by_upstream(
        self, command_double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        monkeypatch.chdir(tmp_path)
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "slurm-7-trainer-1.err").write_text("from before\n")
        record_job_dir("7", str(tmp_path / "job"))
        unknown = HERE / "recorded" / "squeue-unknown-22.05.8.err"
        command_double("squeue", f"cat '{unknown}' >&2; exit 1")
        assert list(create_scheduler("x").log_iter("7", "trainer", 1)) == ["from before\n"]
