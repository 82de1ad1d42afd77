"""Tests of the base class of schedulers for batch systems, and of its index and parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchx_kit.batch.describe import AppSnapshot, entries_by_names
from torchx_kit.batch.entries import Entry, RoleEntry
from torchx_kit.batch.scheduler import BatchScheduler
from torchx_kit.batch.states import JobInfo, JobState, Phase
from torchx_kit.batch.system import BatchSystem
from torchx_kit.jobs.records import JobRecord
from torchx_specs import AppState
from torchx_specs.schedulers import DescribeAppResponse


class System(BatchSystem):
    backend = "queue"
    states = {"R": JobState(Phase.RUNNING)}
    has_tasks = True


System.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]


class Queue(BatchScheduler[Any]):
    system_type = System

    def __init__(self, session_name: str = "session", **params: Any) -> None:
        super().__init__(session_name, **params)
        self.queued: dict[str, AppState] = {}
        self.queries: list[str] = []

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        self.queries.append(app_id)
        state = self.queued.get(app_id)
        return None if state is None else DescribeAppResponse(app_id, state)

    def _cancel_existing(self, app_id: str) -> None:
        self.queued[app_id] = AppState.CANCELLED

    def _submit_dryrun(self, *args: Any) -> Any: ...
    def schedule(self, *args: Any) -> Any: ...
    def list(self, *args: Any) -> Any: ...


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    return Queue()


def test_an_entry_is_the_same_after_reading_its_file(queue: Queue) -> None:
    roles = [RoleEntry("main", "main", 1, ["7"])]
    entry = Entry("app-1", "app", "/work", "/work/.torchx-queue/app-1", roles, 7.0, complete=True)
    queue._index.put(entry)
    assert queue._index.get("app-1") == entry


def test_an_app_in_the_index_exists_without_a_query(queue: Queue) -> None:
    queue._index.put(Entry("app-1", "app", "/work", "/work/app-1"))
    assert queue.exists("app-1")
    assert queue.queries == []
    assert not queue.exists("app-2")
    assert queue.queries == ["app-2"]


def test_a_deleted_app_is_cancelled_and_leaves_no_file(queue: Queue, tmp_path: Path) -> None:
    work = tmp_path / "work"
    record = work / ".torchx-queue" / "app-1"
    record.mkdir(parents=True)
    names = ("app-1-main-0.out", "app-1-main-0.err", "app-10-main-0.out", "result.txt")
    for path in (*(work / name for name in names), record / "script"):
        path.touch()
    roles = [RoleEntry("main", "main", 1, ["7"])]
    queue._index.put(Entry("app-1", "app", str(work), str(record), roles, 7.0, complete=True))
    queue.queued["app-1"] = AppState.RUNNING
    queue.delete("app-1")
    assert {path.name for path in work.iterdir()} == {"app-10-main-0.out", "result.txt"}
    assert queue.queued["app-1"] == AppState.CANCELLED
    assert not queue.exists("app-1")


def test_a_replica_of_another_home_that_has_left_the_queue_is_unknown() -> None:
    name = "my-app-b4c5d6f7g9h0-main"
    jobs = {job_id: JobInfo(job_id, name, "R", "n1") for job_id in ("7.1", "7.3")}
    system = System()
    (entry,) = entries_by_names(system, [*jobs.values(), JobInfo("8", "other")]).values()
    assert (entry.app_id, entry.jobs) == ("my-app-b4c5d6f7g9h0", ["7"])
    app = AppSnapshot(system, entry, jobs, JobRecord(system.host, "", {}))
    assert not app.has_vanished({})
    found = app.describe({})
    states = [replica.state for replica in found.roles_statuses[0].replicas]
    assert states == [AppState.RUNNING, AppState.UNKNOWN, AppState.RUNNING]
    assert found.state == AppState.RUNNING


def test_a_factory_ignores_the_parameters_of_other_schedulers() -> None:
    made = Queue.create("other", timeout=1.0, host=None, docker_client=object())
    assert (made.session_name, made.system.timeout, made.system.patience) == ("other", 1.0, 60.0)
