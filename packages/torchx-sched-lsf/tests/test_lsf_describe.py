"""The state of apps, from the records of their replicas and from bjobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.records import JobRecord
from torchx_sched_lsf import describe as describe_module
from torchx_sched_lsf.client import Lsf
from torchx_sched_lsf.describe import describe, describe_project
from torchx_sched_lsf.queries import Job
from torchx_sched_lsf.records import SCRIPT, Entry, RoleEntry
from torchx_specs import AppState
from torchx_specs.schedulers import DescribeAppResponse


class App:
    """An app of two replicas with the jobs 7 and 8, and what bjobs answers."""

    def __init__(self, folder: Path) -> None:
        self.entry = Entry(
            "app-1", "app", str(folder), roles=[RoleEntry("main", "main", ["7", "8"])]
        )
        self.record = JobRecord(LocalHost(), self.entry.record)
        self.record.create(SCRIPT, "", "jobdir")
        self.jobs: dict[str, str] = {}
        self.explanation: tuple[str, int | None, bool] = ("", None, False)

    def write(self, name: str, text: str) -> None:
        Path(self.record.path, name).write_text(text)

    def describe(self) -> DescribeAppResponse:
        return describe(Lsf(), self.entry)

    def replicas(self) -> list[tuple[AppState, str]]:
        [role] = self.describe().roles_statuses
        return [(replica.state, replica.reason) for replica in role.replicas]


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    app = App(tmp_path)

    def jobs_by_id(lsf: Lsf, job_ids: list[str]) -> dict[str, Job]:
        return {number: Job(number, stat, host="n1") for number, stat in app.jobs.items()}

    monkeypatch.setattr(describe_module, "jobs_by_id", jobs_by_id)
    monkeypatch.setattr(describe_module, "explain_job", lambda lsf, job_id: app.explanation)
    return app


def test_running_and_pending_replicas(app: App) -> None:
    app.jobs = {"7": "RUN", "8": "PEND"}
    app.explanation = ("Job dependency condition not satisfied", None, False)
    description = app.describe()
    assert description.state == AppState.RUNNING
    assert app.replicas() == [
        (AppState.RUNNING, ""),
        (AppState.PENDING, "Job dependency condition not satisfied"),
    ]
    assert description.roles_statuses[0].replicas[0].node == "n1"


def test_recorded_ends_need_no_query(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(describe_module, "jobs_by_id")
    app.write("replica-0-0", "0 n1 1 5 0\n")
    app.write("replica-0-1", "2 n2 1 5 0\n")
    description = app.describe()
    assert description.state == AppState.SUCCEEDED
    assert [r.restarts for r in description.roles_statuses[0].replicas] == [0, 2]


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
    assert description.structured_error_msg == '{"message": "boom"}'
    assert [r.exit_code for r in description.roles_statuses[0].replicas] == [-15, 9]


def test_replica_that_lsf_killed_has_its_reason(app: App) -> None:
    app.write("replica-0-0", "0 n1 1 5 0\n")
    app.write("replica-0-1", "0 n2 1 4 137\n")
    app.explanation = ("TERM_MEMLIMIT: out of memory", 137, False)
    assert app.replicas()[1] == (
        AppState.FAILED,
        "killed by signal 9 (SIGKILL); TERM_MEMLIMIT: out of memory",
    )


def test_app_that_its_owner_killed_is_cancelled(app: App) -> None:
    app.jobs = {"7": "EXIT", "8": "EXIT"}
    app.explanation = ("TERM_OWNER: killed by its owner", 130, True)
    assert app.describe().state == AppState.CANCELLED


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
    description = describe_project("app-1", jobs)
    assert description is not None
    [role] = description.roles_statuses
    assert [replica.state for replica in role.replicas] == [AppState.RUNNING, AppState.SUCCEEDED]
    unnamed = describe_project("app-1", [Job("7", "EXIT", "app-1")])
    assert unnamed is not None
    assert (unnamed.state, unnamed.roles_statuses) == (AppState.FAILED, [])
    assert describe_project("app-1", []) is None
