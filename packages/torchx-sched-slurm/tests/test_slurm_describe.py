"""Tests of the state of jobs, from the queue, from accounting and from the jobs' records.

``recorded/`` has outputs of Slurm 22.05.8; ``written/`` has outputs of other versions, made from
the documentation of these versions.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from torchx_kit.batch.describe import describe_all
from torchx_kit.batch.entries import Index, RoleEntry
from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.descriptions import listed
from torchx_sched_slurm import describe as describing
from torchx_sched_slurm import jobs as queries
from torchx_sched_slurm.job_files import records
from torchx_sched_slurm.system import Slurm
from torchx_specs import AppState
from torchx_specs.schedulers import DescribeAppResponse

HERE = Path(__file__).parent
HOST = LocalHost()
SQUEUE = (HERE / "recorded" / "squeue-22.05.8.txt").read_text()
SACCT = (HERE / "recorded" / "sacct-22.05.8.txt").read_text()
WRITTEN = (HERE / "written" / "sacct-25.05.txt").read_text()


QUEUED = {job.job_id: job for job in queries.parse_jobs(SQUEUE, queries.SQUEUE)}
RECORDED = {job.job_id: job for job in queries.parse_jobs(SACCT, queries.SACCT)}


def queued(
    state: str,
    reason: str = "None",
    start: str = "N/A",
    nodes: str = "",
    submitted: str = "N/A",
    end: str = "N/A",
) -> queries.SlurmJob:
    """Return job 5, whose record is the working directory."""
    row = ["5", state, reason, start, nodes, submitted, "/w", "app", "(null)", end]
    (job,) = queries.parse_jobs("\x1f".join(row), queries.SQUEUE)
    return job


def snapshot(entry: records.SlurmEntry, job: queries.SlurmJob | None) -> describing.SlurmApp:
    jobs = {entry.app_id: job} if job else {}
    return describing.SlurmApp(Slurm(HOST), entry, jobs, records.SlurmRecord(HOST, entry.record))


def app_state(
    entry: records.SlurmEntry | None, job: queries.SlurmJob | None
) -> tuple[AppState, str]:
    return snapshot(entry or records.SlurmEntry("5", "", "", ""), job).state()


def describe(
    app_id: str, entry: records.SlurmEntry | None, job: queries.SlurmJob | None
) -> DescribeAppResponse:
    return snapshot(entry or records.SlurmEntry(app_id, "", "", ""), job).describe({})


class TestQueueAndAccounting:
    @pytest.mark.parametrize(
        ("number", "state", "reason"),
        [
            ("9", AppState.CANCELLED, "CANCELLED"),
            ("1", AppState.SUCCEEDED, ""),
            ("2", AppState.FAILED, ""),
            ("6", AppState.PENDING, "PartitionNodeLimit: the job needs more nodes"),
            ("8", AppState.PENDING, "DependencyNeverSatisfied: a job that this job waits for"),
            (
                "10",
                AppState.PENDING,
                "smaller replicas start earlier; expected to start at 2027",
            ),
            ("7", AppState.PENDING, "JobHeldUser: the job is held"),
            ("4", AppState.RUNNING, ""),
        ],
    )
    def test_state_and_reason_of_a_queued_job(
        self, number: str, state: AppState, reason: str
    ) -> None:
        found, found_reason = app_state(None, QUEUED[number])
        assert found == state
        assert reason in found_reason

    @pytest.mark.parametrize(
        ("number", "state", "reason"),
        [
            ("77", AppState.FAILED, "OUT_OF_MEMORY: out of memory"),
            ("78", AppState.FAILED, "NODE_FAIL: a node failed"),
            ("79", AppState.FAILED, "PREEMPTED: preempted"),
            ("80", AppState.FAILED, "TIMEOUT: time limit"),
            ("81", AppState.CANCELLED, "CANCELLED"),
            ("82", AppState.FAILED, "DEADLINE"),
        ],
    )
    def test_state_and_reason_of_an_ended_job(
        self, number: str, state: AppState, reason: str
    ) -> None:
        jobs = {job.job_id: job for job in queries.parse_jobs(WRITTEN, queries.SACCT)}
        found, found_reason = app_state(None, jobs[number])
        assert (found, reason in found_reason) == (state, True)

    def test_pending_job_without_a_reason(self) -> None:
        assert app_state(None, queued("PENDING")) == (AppState.PENDING, "pending")
        assert app_state(None, queued("PENDING", "(Priority)"))[1].startswith("Priority: other")

    def test_recorded_accounting(self) -> None:
        assert RECORDED["3"].exit_code == -9
        assert len(RECORDED["4"].parts) == 2
        assert app_state(None, RECORDED["2"])[0] == AppState.FAILED


class TestTimes:
    def test_of_an_ended_job_in_the_queue(self) -> None:
        found = describe("9", None, QUEUED["9"])
        assert seconds(found) == [1795403325, 1795403326, 1795403327]

    def test_of_a_running_job(self) -> None:
        """The end that Slurm reports for a running job is only the latest possible one."""
        job = queued("RUNNING", "", "7", "n1", "6", "99")
        assert seconds(describe("5", None, job)) == [6, 7, None]

    def test_of_a_pending_job(self) -> None:
        """The start that Slurm reports for a pending job is only the expected one."""
        found = describe("10", None, QUEUED["10"])
        assert seconds(found) == [1795403327, None, None]

    def test_a_job_that_was_cancelled_before_its_start_has_none(self) -> None:
        """Slurm sets the start to the end, but the job never had nodes."""
        job = queued("CANCELLED", start="8", submitted="6", end="8")
        assert seconds(describe("5", None, job)) == [6, None, 8]

    def test_of_accounting(self) -> None:
        item = describing.list_item(RECORDED["3"])
        assert seconds(item) == [1795403322, 1795403323, 1795403323]
        assert (item.name, item.exit_code) == ("sig", -9)

    def test_without_accounting(self, tmp_path: Path) -> None:
        roles = [RoleEntry("main", "main", 2)]
        entry = records.SlurmEntry("5", "app", str(tmp_path), str(tmp_path), roles, 4.9)
        (tmp_path / "started").write_text("0 5 6\n")
        (tmp_path / "outcome").write_text("FAILED 137 0 12\n")
        (tmp_path / "replica-0-0").write_text("0 n1 8 11 143\n")
        (tmp_path / "replica-0-1").write_text("0 n2 7 10 137\n")
        found = describe("5", entry, None)
        assert seconds(found) == [4, 7, 12]
        replicas = found.roles_statuses[0].replicas
        assert [seconds(replica) for replica in replicas] == [[8, 11], [7, 10]]
        item = listed(found)
        assert (seconds(item), item.exit_code) == ([4, 7, 12], -15)

    def test_of_a_job_that_could_not_report_its_end(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The index keeps the state and end time that Slurm reported before it forgot the job."""
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
        monkeypatch.setenv("PATH", "")  # Slurm has forgotten the job, so nothing is queried
        entry = records.SlurmEntry(
            "5", "app", str(tmp_path), str(tmp_path), submitted=4.0, complete=True
        )
        (tmp_path / "started").write_text("0 5 6\n")
        shown = {"5": queued("NODE_FAIL", start="6", nodes="n1", end="9")}
        slurm, index = Slurm(HOST), Index("slurm", records.SlurmEntry)
        for jobs in (shown, {}):
            found = describe_all(slurm, index, [entry], jobs=jobs, app_type=describing.SlurmApp)[
                "5"
            ]
            assert (found.state, found.msg) == (AppState.FAILED, "NODE_FAIL: a node failed")
            assert seconds(found) == [4, 6, 9]


def seconds(found: object) -> list[float | None]:
    """Return the times of an app or a replica, in seconds since 1970."""
    names = [name for name in ("submitted", "started", "ended") if hasattr(found, name)]
    times = [getattr(found, name) for name in names]
    return [None if when is None else when.timestamp() for when in times]


class TestRecord:
    """Tests of descriptions that are made from the record alone, without squeue and sacct."""

    @pytest.fixture
    def entry(self, tmp_path: Path) -> records.SlurmEntry:
        roles = [RoleEntry("main", "main", 2)]
        return records.SlurmEntry("5", "app", str(tmp_path), str(tmp_path), roles, 1.0)

    def test_job_that_never_started_was_cancelled(self, entry: records.SlurmEntry) -> None:
        state, reason = app_state(entry, None)
        assert (state, reason) == (
            AppState.CANCELLED,
            "it left the queue before it started",
        )

    def test_job_that_did_not_report_its_end_has_failed(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        (tmp_path / "replica-0-0").write_text("0 n1 1\n")
        found = describe("5", entry, None)
        assert found.state == AppState.FAILED
        assert "without reporting its end" in found.msg
        assert found.roles_statuses[0].replicas[0].node == "n1"

    def test_failed_job_names_the_first_failure(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        (tmp_path / "started").write_text("2 5 1\n")
        (tmp_path / "outcome").write_text("FAILED 9 2 5\n")
        (tmp_path / "failed").write_text("0 1 n2 9\n")
        (tmp_path / "replica-0-0").write_text("0 n1 1 5 143\n")
        (tmp_path / "replica-0-1").write_text("0 n2 1 4 9\n")
        (tmp_path / "error-0-1.json").write_text('{"message": "boom"}')
        found = describe("5", entry, None)
        assert (found.state, found.num_restarts) == (AppState.FAILED, 2)
        assert found.msg == "main/1 on n2: exit code 9"
        assert [r.exit_code for r in found.roles_statuses[0].replicas] == [-15, 9]
        assert found.structured_error_msg == '{"message":"boom"}'

    def test_replica_that_did_not_start_before_the_failure_is_cancelled(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        (tmp_path / "outcome").write_text("FAILED 9 0 5\n")
        (tmp_path / "failed").write_text("0 1 n2 9\n")
        (tmp_path / "replica-0-1").write_text("0 n2 1 4 9\n")
        replicas = describe("5", entry, None).roles_statuses[0].replicas
        assert [r.state for r in replicas] == [AppState.CANCELLED, AppState.FAILED]
        assert replicas[0].reason == "another replica failed before this one started"

    @pytest.mark.parametrize(
        "state", ["NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "PREEMPTED", "DEADLINE"]
    )
    def test_the_end_in_slurm_wins_over_the_record(
        self, entry: records.SlurmEntry, tmp_path: Path, state: str
    ) -> None:
        (tmp_path / "outcome").write_text("SUCCEEDED 0 0 5\n")
        job = queued(state)
        found, reason = app_state(entry, job)
        assert (found, reason.partition(":")[0]) == (AppState.FAILED, state)
        assert app_state(entry, None)[0] == AppState.SUCCEEDED

    @pytest.mark.parametrize("outcome", ["SUCCEEDED 0", "FAILED 143", "REQUEUED 1"])
    def test_a_job_that_slurm_starts_again_is_pending(
        self, entry: records.SlurmEntry, tmp_path: Path, outcome: str
    ) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        (tmp_path / "outcome").write_text(f"{outcome} 0 5\n")
        job = queued("PENDING", "BeginTime", "1735689600")
        state, reason = app_state(entry, job)
        assert state == AppState.PENDING
        assert reason.startswith("requeued")
        assert "BeginTime" not in reason

    @pytest.mark.parametrize(
        ("state", "reason"),
        [("REQUEUE_HOLD", "None"), ("SPECIAL_EXIT", "None"), ("PENDING", "JobHoldMaxRequeue")],
    )
    def test_a_held_requeue_says_that_a_person_must_act(
        self, entry: records.SlurmEntry, tmp_path: Path, state: str, reason: str
    ) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        found = app_state(entry, queued(state, reason))
        assert found[0] == AppState.PENDING
        assert "until somebody runs scontrol release" in found[1]

    def test_the_record_of_a_requeue_counts_for_a_minute_without_slurm(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        (tmp_path / "outcome").write_text(f"REQUEUED 1 0 {int(time.time())}\n")
        assert app_state(entry, None) == (AppState.PENDING, "requeued: attempt 1 has failed")
        (tmp_path / "outcome").write_text("REQUEUED 1 0 5\n")
        state, reason = app_state(entry, None)
        assert (state, reason) == (AppState.CANCELLED, "it left the queue before it started again")

    def test_ending_job_runs_until_slurm_or_the_record_shows_its_end(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        job = queued("COMPLETING")
        now = int(time.time())
        assert app_state(entry, job)[0] == AppState.RUNNING
        (tmp_path / "outcome").write_text(f"FAILED 1 0 {now}\n")
        assert app_state(entry, job)[0] == AppState.RUNNING  # Slurm may start the job again
        (tmp_path / "outcome").write_text("FAILED 1 0 5\n")
        assert app_state(entry, job)[0] == AppState.FAILED
        (tmp_path / "outcome").write_text(f"REQUEUED 1 0 {now}\n")
        assert app_state(entry, job)[0] == AppState.PENDING
        (tmp_path / "outcome").write_text(f"SUCCEEDED 0 0 {now}\n")
        assert app_state(entry, job)[0] == AppState.SUCCEEDED

    def test_job_that_could_not_query_its_state_may_have_been_cancelled(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        (tmp_path / "outcome").write_text("FAILED 143 0 5 \n")
        assert app_state(entry, None)[0] == AppState.FAILED
        entry.cancelled = True
        assert app_state(entry, None) == (AppState.CANCELLED, "cancelled")

    def test_failure_before_a_cancellation_stays_a_failure(
        self, entry: records.SlurmEntry, tmp_path: Path
    ) -> None:
        (tmp_path / "outcome").write_text("FAILED 1 0 5 RUNNING\n")
        entry.cancelled = True
        assert app_state(entry, None) == (AppState.FAILED, "exit code 1")

    @pytest.mark.parametrize("text", ["", "FAI", "FAILED 1 0", "FAILED 1 0 5"])
    def test_incomplete_outcome_counts_as_missing(
        self, entry: records.SlurmEntry, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "outcome").write_text(text)
        assert records.SlurmRecord(HOST, str(tmp_path)).outcome is None

    @pytest.mark.parametrize(
        ("cause", "state", "message"),
        [
            ("TIMEOUT", AppState.FAILED, "TIMEOUT: time limit reached (option time)"),
            ("CANCELLED", AppState.CANCELLED, "CANCELLED: cancelled"),
            ("COMPLETING", AppState.CANCELLED, "CANCELLED: cancelled"),
            ("RUNNING", AppState.FAILED, "exit code 137"),
        ],
    )
    def test_the_script_reports_how_slurm_ended_the_job(
        self, entry: records.SlurmEntry, tmp_path: Path, cause: str, state: AppState, message: str
    ) -> None:
        (tmp_path / "outcome").write_text(f"FAILED 137 0 1 {cause}\n")
        assert app_state(entry, None) == (state, message)
