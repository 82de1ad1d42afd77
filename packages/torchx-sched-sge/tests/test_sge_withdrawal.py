"""Holds of waiting jobs, without Grid Engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from torchx_sched_sge.client import Sge, SgeError
from torchx_sched_sge.records import Entry, RoleEntry
from torchx_sched_sge.withdrawal import hold_unless_started, release


class FakeSge(Sge):
    """Lists two tasks of job 17 in other states for each query, and records the other commands.

    Args:
        states: The states of both tasks, one pair for each query. An empty state stands for a task
            that has ended.
        refusal: The error of ``qhold`` and ``qrls``; empty if they succeed.
    """

    def __init__(self, *states: tuple[str, str], refusal: str = "") -> None:
        super().__init__()
        self._states = list(states)
        self._refusal = refusal
        self.calls: list[list[str]] = []

    def _run(
        self,
        argv: Sequence[str],
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        allow_empty: bool = False,
    ) -> str:
        if argv[0] == "qstat":
            rows = [
                "<job_list><JB_job_number>17</JB_job_number><JB_name>a-main</JB_name>"
                f"<state>{state}</state><tasks>{number}</tasks></job_list>"
                for number, state in enumerate(self._states.pop(0), 1)
                if state
            ]
            return f"<job_info>{''.join(rows)}</job_info>"
        self.calls.append(list(argv))
        if self._refusal:
            raise SgeError(self._refusal)
        return ""


ENTRY = Entry("a", "a", "/x", [RoleEntry("main", "main", 2, "17")], complete=True)
HOLD = ["qhold", "-h", "u", "17"]
RELEASE = ["qrls", "-h", "u", "17"]


@pytest.mark.parametrize(
    ("before", "after", "calls"),
    [
        (("qw", "qw"), ("hqw", "hqw"), [HOLD]),
        (("hqw", "hqw"), ("hqw", "hqw"), [HOLD]),
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
def test_jobs_stay_held_only_if_no_task_has_started(
    before: tuple[str, str], after: tuple[str, str] | None, calls: list[list[str]]
) -> None:
    sge = FakeSge(before, *([after] if after else []))
    assert hold_unless_started(sge, ENTRY) is (calls == [HOLD])
    assert sge.calls == calls


def test_an_ended_job_is_released_without_an_error() -> None:
    release(FakeSge(refusal='modify_job: job "17" does not exist'), ENTRY)
    with pytest.raises(SgeError, match="denied"):
        release(FakeSge(refusal="denied: job is owned by root"), ENTRY)
