"""The state of apps, from the records of their replicas and from bjobs."""

from __future__ import annotations

import shutil
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.records import JobRecord
from torchx_kit.times import moment
from torchx_sched_lsf import describe as describe_module
from torchx_sched_lsf.client import Lsf, UnreachableError
from torchx_sched_lsf.describe import describe, describe_by_names
from torchx_sched_lsf.job_files.records import SCRIPT, Entry, Index, RoleEntry
from torchx_sched_lsf.queue.queries import Job
from torchx_sched_lsf.states import Explanation
from torchx_specs import AppState
from torchx_specs.schedulers import DescribeAppResponse


class App:
    """An app of two replicas with the jobs 7 and 8, and the answers of bjobs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entry = Entry(
            "app-1",
            "app",
            str(folder),
            roles=[RoleEntry("main", "main", ["7", "8"])],
            complete=True,
        )
        self.record = JobRecord(LocalHost(), self.entry.record)
        self.record.create(SCRIPT, "", "jobdir")
        self.jobs: dict[str, str] = {}
        self.explanation = Explanation()
        self.monkeypatch = monkeypatch
        self.explained: list[list[str]] = []

    def write(self, name: str, text: str) -> None:
        Path(self.record.path, name).write_text(text)

    def describe(self) -> DescribeAppResponse:
        self.entry.final = None
        return describe(Lsf(), Index(), self.entry)

    def replicas(self) -> list[tuple[AppState, str]]:
        [role] = self.describe().roles_statuses
        return [(replica.state, replica.reason) for replica in role.replicas]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    app = App(tmp_path, monkeypatch)

    def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
        return {number: Job(number, stat, host="n1") for number, stat in app.jobs.items()}

    monkeypatch.setattr(describe_module, "jobs_by_id", jobs_by_id)

    def explain_jobs(lsf: Lsf, job_ids: list[str]) -> dict[str, Explanation]:
        app.explained.append(job_ids)
        return dict.fromkeys(job_ids, app.explanation)

    monkeypatch.setattr(describe_module, "explain_jobs", explain_jobs)
    return app


def test_running_and_pending_replicas(app: App) -> None:
    app.jobs = {"7": "RUN", "8": "PEND"}
    app.write("replica-0-0", "0 n1 103 0\n")
    app.explanation = Explanation("Job dependency condition not satisfied", None, False)
    description = app.describe()
    assert description.state == AppState.RUNNING
    assert app.replicas() == [
        (AppState.RUNNING, ""),
        (AppState.PENDING, "Job dependency condition not satisfied"),
    ]
    assert description.roles_statuses[0].replicas[0].node == "n1"


def test_recorded_ends_count_if_lsf_does_not_answer(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
        raise UnreachableError("LSF is down")

    monkeypatch.setattr(describe_module, "jobs_by_id", jobs_by_id)
    app.write("replica-0-0", "0 n1 1 5 0\n")
    with pytest.raises(UnreachableError):
        app.describe()
    app.write("replica-0-1", "2 n2 1 5 0\n")
    description = app.describe()
    assert description.state == AppState.SUCCEEDED
    assert [r.restarts for r in description.roles_statuses[0].replicas] == [0, 2]


def test_state_during_the_submission_is_not_final(app: App) -> None:
    """LSF may still accept a job of the app."""
    app.entry.complete, app.entry.submitted = False, time.time()
    jobs = {number: Job(number, "DONE", host="n1") for number in ("7", "8")}

    def state() -> AppState:
        return describe_module.describe_all(Lsf(), Index(), [app.entry], jobs)["app-1"].state

    assert (state(), app.entry.final) == (AppState.SUCCEEDED, None)
    app.entry.submitted = 0.0
    assert state() == AppState.SUCCEEDED
    assert app.entry.final is not None


def test_requeued_job_is_pending_whatever_its_record_says(app: App) -> None:
    app.write("replica-0-0", "0 n1 1 5 130\n")
    app.write("replica-0-1", "0 n2 1 5 0\n")
    app.jobs = {"7": "PEND", "8": "DONE"}
    app.explanation = Explanation("Not enough slots")
    assert app.describe().state == AppState.PENDING
    assert app.replicas()[0] == (AppState.PENDING, "requeued; Not enough slots")


def test_failure_counts_once_lsf_has_ended_the_job(app: App) -> None:
    """While LSF lists the job as running, LSF may still requeue it."""
    app.write("replica-0-0", "0 n1 1 5 99\n")
    app.write("replica-0-1", "0 n2 1 5 0\n")
    app.jobs = {"7": "RUN", "8": "RUN"}
    assert [state for state, _ in app.replicas()] == [AppState.RUNNING, AppState.SUCCEEDED]
    app.jobs = {"7": "EXIT", "8": "DONE"}
    assert app.describe().state == AppState.FAILED


def test_final_description_is_kept(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.jobs = {"7": "EXIT", "8": "EXIT"}
    app.explanation = Explanation("TERM_OWNER: killed by its owner", 130, True)
    before = app.describe()
    kept = Index().get("app-1")
    assert kept is not None
    monkeypatch.delattr(describe_module, "jobs_by_id")
    monkeypatch.setattr(describe_module, "LsfRecord", None)
    assert describe(Lsf(), Index(), kept) == before
    assert before.state == AppState.CANCELLED


def test_end_that_a_replica_records_during_the_query_counts(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.write("replica-0-0", "0 n1 1 5 0\n")
    app.write("replica-0-1", "0 n2 1\n")

    def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
        app.write("replica-0-1", "2 n2 1 2 3\n")
        return {"8": Job("8", "EXIT")}

    monkeypatch.setattr(describe_module, "jobs_by_id", jobs_by_id)
    description = app.describe()
    status = description.roles_statuses[0].replicas[1]
    assert (description.state, status.restarts, status.exit_code) == (AppState.FAILED, 2, 3)


def test_failed_app_names_the_first_failure(app: App) -> None:
    app.write("replica-0-0", "0 n1 1 5 143\n")
    app.write("replica-0-1", "0 n2 1 4 9\n")
    app.write("failed", "0 1 n2 9\n")
    app.write("error-0-1.json", '{"message": "boom"}\n')
    description = app.describe()
    assert (description.state, description.msg) == (AppState.FAILED, "main/1 on n2: exit code 9")
    assert description.structured_error_msg == '{"message":"boom"}'
    assert [r.exit_code for r in description.roles_statuses[0].replicas] == [-15, 9]


def test_replica_that_lsf_killed_has_its_reason(app: App) -> None:
    app.write("replica-0-0", "0 n1 1 5 0\n")
    app.write("replica-0-1", "0 n2 1 4 137\n")
    app.jobs = {"7": "DONE", "8": "EXIT"}
    app.explanation = Explanation("TERM_MEMLIMIT: out of memory", 137, False)
    assert app.replicas()[1] == (
        AppState.FAILED,
        "killed by signal 9 (SIGKILL); TERM_MEMLIMIT: out of memory",
    )


def test_app_that_its_owner_killed_is_cancelled(app: App) -> None:
    app.jobs = {"7": "EXIT", "8": "EXIT"}
    app.explanation = Explanation("TERM_OWNER: killed by its owner", 130, True)
    assert app.describe().state == AppState.CANCELLED


@pytest.mark.parametrize("signal_number", [2, 12, 24])
def test_limit_is_a_failure_and_not_a_cancellation(app: App, signal_number: int) -> None:
    app.write("replica-0-0", f"0 n1 1 5 {128 + signal_number}\n")
    app.write("replica-0-1", "0 n2 1 5 0\n")
    app.jobs = {"7": "EXIT", "8": "DONE"}
    app.explanation = Explanation("TERM_MEMLIMIT: out of memory", 130, False)
    description = app.describe()
    assert description.state == AppState.FAILED
    assert "TERM_MEMLIMIT: out of memory" in description.msg


def test_signal_of_a_limit_is_named_if_lsf_gives_no_reason(app: App) -> None:
    app.write("replica-0-0", "0 n1 1 5 140\n")
    app.write("replica-0-1", "0 n2 1 5 0\n")
    assert app.replicas()[0][1] == (
        "killed by signal 12 (SIGUSR2); LSF sends this signal at the run time limit (option time)"
    )


def test_all_jobs_are_explained_by_one_query(app: App) -> None:
    app.jobs = {"7": "PEND", "8": "PEND"}
    app.describe()
    assert app.explained == [["7", "8"]]


def test_replica_that_never_started_names_the_failure(app: App) -> None:
    app.write("replica-0-0", "0 n1 1 2 3\n")
    app.write("failed", "0 0 n1 3\n")
    app.jobs = {"7": "EXIT", "8": "EXIT"}
    assert app.describe().state == AppState.FAILED
    assert app.replicas()[1] == (
        AppState.CANCELLED,
        "another replica failed before this one started",
    )


def test_directory_that_a_host_cannot_see_is_named(app: App, tmp_path: Path) -> None:
    app.jobs = {"7": "EXIT", "8": "EXIT"}
    app.explanation = Explanation("", 127, False)
    state, reason = app.replicas()[0]
    assert state == AppState.FAILED
    assert reason.startswith(f"exit code 127: host n1 cannot see {tmp_path}; set the option jobdir")


def test_outcome_is_unknown_without_record_and_job(app: App) -> None:
    shutil.rmtree(app.record.path)
    state, reason = app.replicas()[0]
    assert state == AppState.FAILED
    assert reason.startswith("its outcome is unknown: LSF has forgotten it")


def test_job_that_is_not_submitted_is_pending_for_a_while(app: App) -> None:
    app.entry.roles[0].jobs[1] = ""
    app.entry.complete = False
    app.entry.submitted = time.time()
    app.write("jobs", "0 0 7\n")
    app.jobs = {"7": "RUN"}
    app.monkeypatch.setattr(describe_module, "all_jobs", lambda lsf: [Job("7", "RUN")])
    assert app.describe().msg == "1 of 2 jobs are submitted"
    assert app.replicas()[1] == (AppState.PENDING, "not submitted yet")
    app.entry.submitted -= 3600
    assert app.replicas()[1] == (
        AppState.FAILED,
        "the submission was interrupted before this job was submitted",
    )


@pytest.mark.parametrize(
    ("cancelled", "started", "state", "reason"),
    [
        (True, True, AppState.CANCELLED, "cancelled"),
        (False, False, AppState.CANCELLED, "it left the queue before it started"),
        (False, True, AppState.FAILED, "it left the queue without reporting its end"),
    ],
)
def test_job_that_lsf_has_forgotten(
    app: App, cancelled: bool, started: bool, state: AppState, reason: str
) -> None:
    app.entry.cancelled = cancelled
    if started:
        app.write("replica-0-0", "0 n1 1\n")
    found, found_reason = app.replicas()[0]
    assert found == state
    assert found_reason.startswith(reason)


def test_app_that_was_submitted_elsewhere_is_described_by_the_names_of_its_jobs() -> None:
    jobs = [Job("7", "RUN", "app-1", "app-1-main-0"), Job("8", "DONE", "app-1", "app-1-main-1")]
    noon = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
    explanations = {
        "7": Explanation(submitted=noon, started=noon + timedelta(seconds=3)),
        "8": Explanation(submitted=noon, started=noon, ended=noon + timedelta(seconds=5)),
    }
    description = describe_by_names("app-1", jobs, explanations)
    assert description is not None
    [role] = description.roles_statuses
    assert [replica.state for replica in role.replicas] == [AppState.RUNNING, AppState.SUCCEEDED]
    times = (description.submitted, description.started, description.ended)
    assert times == (noon, noon, None)
    assert describe_by_names("app-1", [], {}) is None


def test_times_of_an_app_are_those_of_its_record(app: App) -> None:
    app.entry.submitted = 100.7
    app.write("replica-0-0", "0 n1 103 109 0\n")
    app.write("replica-0-1", "0 n1 102 108 0\n")
    found = app.describe()
    times = [found.submitted, found.started, found.ended]
    assert [when and when.timestamp() for when in times] == [100, 102, 109]
    replicas = found.roles_statuses[0].replicas
    assert [r.started and r.started.timestamp() for r in replicas] == [103, 102]


def test_a_job_that_runs_has_a_start_before_it_has_a_report(app: App) -> None:
    app.jobs = {"7": "RUN", "8": "RUN"}
    app.write("replica-0-1", "0 n1 102 0\n")
    app.explanation = Explanation(started=moment(101))
    assert app.describe().started == moment(101)
    assert app.explained == [["7"]]
