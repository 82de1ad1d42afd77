"""States of apps whose tasks are missing in the queue, without Grid Engine."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from torchx_kit.batch.describe import describe_all
from torchx_kit.batch.entries import Entry, Index, RoleEntry
from torchx_kit.batch.submit import finish_submission
from torchx_kit.hosts.api import CommandResult
from torchx_kit.hosts.testing import FakeHost
from torchx_sched_sge.system import Sge
from torchx_specs import AppState
from torchx_specs.schedulers import DescribeAppResponse

STARTED = "<JAT_start_time>1970-01-01T00:00:02</JAT_start_time>"


def system(tmp_path: Path, *states: str) -> Sge:
    """Return a client whose first listings have tasks of job 17 with the states of each item.

    The states of an item are separated by spaces; the last item is used again.
    """
    listings = list(states)

    def run(argv: list[str]) -> str | CommandResult:
        if argv[:2] != ["qstat", "-xml"]:
            return CommandResult(1, "", "error: job id 17 not found")
        found = listings.pop(0) if len(listings) > 1 else listings[0]
        rows = [
            "<job_list><JB_job_number>17</JB_job_number><JB_name>a-main</JB_name>"
            f"<state>{state}</state><tasks>{number}</tasks>{STARTED if 't' in state else ''}"
            "</job_list>"
            for number, state in enumerate(found.split(), 1)
        ]
        return f"<job_info>{''.join(rows)}</job_info>"

    return Sge(FakeHost(str(tmp_path / "remote"), run), sleep=lambda seconds: None)


def entry(count: int = 1) -> Entry:
    roles = [RoleEntry("main", "main", count, ["17"])]
    return Entry("a", "a", "/cluster/x", "/cluster/x/a", roles, submitted=1.0, complete=True)


def described(sge: Sge, one: Entry) -> DescribeAppResponse:
    return describe_all(sge, Index("sge"), [one])["a"]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))


@pytest.mark.parametrize(
    ("state", "expected"),
    [("qw", AppState.PENDING), ("r", AppState.RUNNING), ("", AppState.CANCELLED)],
)
def test_a_task_that_one_listing_omits_is_looked_up_again(
    state: str, expected: AppState, tmp_path: Path
) -> None:
    one = entry()
    assert described(system(tmp_path, "", state), one).state == expected
    assert (one.final is not None) == (expected == AppState.CANCELLED)


def test_a_task_that_runs_has_a_start_before_it_has_a_report(tmp_path: Path) -> None:
    found = described(system(tmp_path, "t"), entry())
    started = datetime.fromtimestamp(2, timezone.utc)
    assert (found.state, found.started) == (AppState.RUNNING, started)


def test_a_task_that_failed_after_the_query_of_the_queue_is_failed(tmp_path: Path) -> None:
    sge, one = system(tmp_path, "qw qw"), entry(2)
    sge.host.make_dirs(one.record)
    sge.host.write(f"{one.record}/replica-0-0", "0 n1 1 2 3\n")
    sge.host.write(f"{one.record}/failed", "0 0 n1 3\n")
    found = described(sge, one)
    assert found.state == AppState.FAILED
    [role] = found.roles_statuses
    assert [replica.state for replica in role.replicas] == [AppState.FAILED, AppState.CANCELLED]
    assert role.replicas[0].exit_code == 3
    assert one.final is None


def test_a_job_that_ended_before_its_id_was_known_has_the_end_of_its_record(tmp_path: Path) -> None:
    sge, one = system(tmp_path, ""), entry()
    one.roles[0].jobs, one.complete = [""], False
    sge.host.make_dirs(one.record)
    sge.host.write(f"{one.record}/replica-0-0", "0 n1 1 2 0\n")
    assert finish_submission(sge, Index("sge"), one).cancelled is False
    assert described(sge, one).state == AppState.SUCCEEDED
