"""Holds of waiting jobs, without Grid Engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.batch.entries import Entry, RoleEntry
from torchx_kit.batch.withdrawal import withdraw
from torchx_kit.hosts.testing import FakeHost
from torchx_sched_sge.system import Sge


def rows(states: tuple[str, str]) -> str:
    """Return a listing of two tasks of job 17; a task that has ended has an empty state."""
    return "".join(
        "<job_list><JB_job_number>17</JB_job_number><JB_name>a-main</JB_name>"
        f"<state>{state}</state><tasks>{number}</tasks></job_list>"
        for number, state in enumerate(states, 1)
        if state
    )


HOLD = ["qhold", "-h", "u", "17"]
RELEASE = ["qrls", "-h", "u", "17"]


DELETE = ["qdel", "17"]


@pytest.mark.parametrize(
    ("before", "after", "calls"),
    [
        (("qw", "qw"), ("hqw", "hqw"), [HOLD, DELETE]),
        (("hqw", "hqw"), ("hqw", "hqw"), [HOLD, DELETE]),
        (("qw", "qw"), ("hr", "hqw"), [HOLD, RELEASE]),
        (("qw", "qw"), ("ht", "hqw"), [HOLD, RELEASE]),
        (("qw", "qw"), ("", "hqw"), [HOLD, RELEASE]),
        (("qw", "qw"), ("hRq", "hqw"), [HOLD, RELEASE]),
        (("r", "qw"), None, []),
        (("", "qw"), None, []),
        (("Rq", "qw"), None, []),
        (("Eqw", "qw"), None, []),
    ],
)
def test_jobs_are_deleted_only_if_no_task_has_started(
    tmp_path: Path,
    before: tuple[str, str],
    after: tuple[str, str] | None,
    calls: list[list[str]],
) -> None:
    listings = [before, *([after] if after else [])]

    def run(argv: list[str]) -> str:
        return f"<job_info>{rows(listings.pop(0))}</job_info>" if argv[0] == "qstat" else ""

    host = FakeHost(str(tmp_path), run)
    entry = Entry("a", "a", "/cluster", "/cluster/a", [RoleEntry("main", "main", 2, ["17"])])
    entry.complete = True
    assert withdraw(Sge(host), entry) is (DELETE in calls)
    assert [argv for argv in host.commands if argv[0] != "qstat"] == calls
