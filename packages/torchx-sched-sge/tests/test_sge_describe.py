"""States of apps whose tasks are missing in the queue, without Grid Engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from torchx_sched_sge.client import Sge, SgeError
from torchx_sched_sge.describe import describe_with
from torchx_sched_sge.queries import Task
from torchx_sched_sge.records import Entry, Index, RoleEntry
from torchx_specs import AppState


class FakeSge(Sge):
    """Lists one task of job 17 with the state ``state``, or no task if ``state`` is empty."""

    def __init__(self, state: str) -> None:
        super().__init__(sleep=lambda seconds: None)
        self._state = state

    def _run(
        self,
        argv: Sequence[str],
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        allow_empty: bool = False,
    ) -> str:
        if argv[0] != "qstat":
            raise SgeError("error: job id 17 not found")
        row = (
            "<job_list><JB_job_number>17</JB_job_number><JB_name>a-main</JB_name>"
            f"<state>{self._state}</state></job_list>"
        )
        return f"<job_info>{row if self._state else ''}</job_info>"


@pytest.mark.parametrize(
    ("state", "expected"),
    [("qw", AppState.PENDING), ("r", AppState.RUNNING), ("", AppState.CANCELLED)],
)
def test_a_task_that_one_listing_omits_is_looked_up_again(
    state: str, expected: AppState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    entry = Entry("a", "a", str(tmp_path), [RoleEntry("main", "main", 1, "17")], complete=True)
    entry.submitted = 1.0
    found = describe_with(FakeSge(state), Index(), entry, {})
    assert found.state == expected
    assert (entry.final is not None) == (expected == AppState.CANCELLED)


def test_a_task_that_runs_has_a_start_before_it_has_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    entry = Entry("a", "a", str(tmp_path), [RoleEntry("main", "main", 1, "17")], complete=True)
    entry.submitted = 1.0
    started = datetime.fromtimestamp(2, timezone.utc)
    tasks = {("17", 1): Task("17", 1, "t", "a-main", started=started)}
    found = describe_with(FakeSge("t"), Index(), entry, tasks)
    assert (found.state, found.started) == (AppState.RUNNING, started)


def test_a_task_that_failed_after_the_query_of_the_queue_is_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    entry = Entry("a", "a", str(tmp_path), [RoleEntry("main", "main", 2, "17")], complete=True)
    tasks = {("17", k): Task("17", k, "qw", "a-main") for k in (1, 2)}
    record = Path(entry.record)
    record.mkdir(parents=True)
    (record / "replica-0-0").write_text("0 n1 1 2 3\n")
    (record / "failed").write_text("0 0 n1 3\n")
    found = describe_with(FakeSge("qw"), Index(), entry, tasks)
    assert found.state == AppState.FAILED
    [role] = found.roles_statuses
    assert [replica.state for replica in role.replicas] == [AppState.FAILED, AppState.CANCELLED]
    assert role.replicas[0].exit_code == 3
    assert entry.final is None
