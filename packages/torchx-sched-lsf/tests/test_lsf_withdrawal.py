"""Holds of pending jobs, without LSF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from torchx_sched_lsf.client import Lsf, LsfError
from torchx_sched_lsf.queue.withdrawal import hold_unless_started


class FakeLsf(Lsf):
    """Lists a job in another state for each query, and records the other commands.

    Args:
        states: The states, one for each query; the last one is repeated. An empty state stands for
            a job that LSF has forgotten.
        refusal: The error of ``bstop``; empty if LSF accepts it.
    """

    def __init__(self, *states: str, refusal: str = "") -> None:
        self.now = 0.0
        super().__init__(sleep=self._advance, clock=lambda: self.now)
        self._states = list(states)
        self._refusal = refusal
        self.calls: list[list[str]] = []

    def _advance(self, seconds: float) -> None:
        self.now += seconds

    def _run(
        self,
        argv: Sequence[str],
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        allow_empty: bool = False,
    ) -> str:
        if argv[0] == "bjobs":
            state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
            return f"101 {state} default app-main-0 -\n" if state else ""
        self.calls.append(list(argv))
        if argv[0] == "bstop" and self._refusal:
            raise LsfError(self._refusal)
        return ""


@pytest.mark.parametrize(
    ("states", "is_held", "commands"),
    [
        (["PEND", "PSUSP"], True, ["bstop"]),
        (["PEND", "PEND", "PSUSP"], True, ["bstop"]),
        (["PSUSP"], True, []),
        (["PEND", "USUSP"], False, ["bstop", "bresume"]),
        # bstop takes effect on the job's host only after two queries
        (["PEND", "RUN", "RUN", "USUSP"], False, ["bstop", "bresume"]),
        # bstop takes no effect for 20 seconds
        (["PEND", "RUN"], False, ["bstop", "bresume"]),
        (["PEND", "UNKWN"], False, ["bstop", "bresume"]),
        (["PEND", "DONE"], False, ["bstop"]),
        (["RUN"], False, []),
        (["USUSP"], False, []),
        (["EXIT"], False, []),
        ([""], None, []),
        (["PEND", ""], None, ["bstop"]),
    ],
)
def test_only_a_pending_job_is_held(
    states: list[str], is_held: bool | None, commands: list[str]
) -> None:
    lsf = FakeLsf(*states)
    assert hold_unless_started(lsf, "101") is is_held
    assert lsf.calls == [[command, "101"] for command in commands]


@pytest.mark.parametrize(
    ("refusal", "reason", "seconds"),
    [("User permission denied", "User permission denied", 0), ("", "no reason", 20)],
)
def test_a_pending_job_that_lsf_does_not_hold_is_an_error(
    refusal: str, reason: str, seconds: float
) -> None:
    lsf = FakeLsf("PEND", refusal=refusal)
    with pytest.raises(LsfError, match=f"does not hold the pending job 101: {reason}"):
        hold_unless_started(lsf, "101")
    assert seconds <= lsf.now <= seconds + 2  # the longest pause


def test_a_refused_hold_of_a_job_that_has_started_is_not_released() -> None:
    lsf = FakeLsf("PEND", "DONE", refusal="Job has already finished")
    assert hold_unless_started(lsf, "101") is False
    assert lsf.calls == [["bstop", "101"]]
