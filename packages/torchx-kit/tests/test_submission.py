"""Tests of announced submissions, and of the record of the submitting process."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from torchx_kit.jobs.submission import Submission, announce, submission, withdraw
from torchx_kit.jobs.submitter import (
    GRACE_SECONDS,
    OTHER_MACHINE_SECONDS,
    has_ended,
    is_interrupted,
    this_process,
)


def recorded(current: Submission) -> list[str]:
    """Record the announced ids in the list that is returned."""
    ids: list[str] = []

    def record(app_id: str) -> str:
        ids.append(app_id)
        return f"x://s/{app_id}" if app_id else ""

    current.record = record
    return ids


@pytest.mark.parametrize(
    ("steps", "logged"),
    [
        ([], []),
        ([lambda: announce("a")], ["x://s/a"]),
        ([lambda: announce("a"), lambda: announce("b")], ["x://s/b"]),
        ([lambda: announce("a"), withdraw], []),
    ],
    ids=["before", "announced", "confirmed", "withdrawn"],
)
def test_interrupt_logs_the_handle_of_an_app_that_may_run(
    steps: list[Callable[[], None]], logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    def submit() -> None:
        with submission() as outer, submission() as current:
            assert current is outer
            recorded(current)
            for step in steps:
                step()
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        submit()
    assert [record.getMessage().split()[3] for record in caplog.records] == logged


def test_announcement_without_a_submission_has_no_effect() -> None:
    announce("a")
    withdraw()


def test_submission_of_a_killed_process_is_interrupted_after_a_grace_period() -> None:
    code = (
        "import json\nfrom torchx_kit.jobs.submitter import this_process\n"
        "print(json.dumps(this_process()), flush=True)\ninput()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        submitter = json.loads(process.stdout.readline())
        assert has_ended(submitter) is False
        assert not is_interrupted(submitter, 0.0)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert has_ended(submitter) is True  # also before its parent has reaped it
    assert has_ended(submitter) is True
    assert is_interrupted(submitter, time.time() - 2 * GRACE_SECONDS)
    assert not is_interrupted(submitter, time.time() + GRACE_SECONDS)


@pytest.mark.parametrize("changes", [{"machine": "another"}, {"pid": None}, {"pid": 0}])
def test_process_of_another_machine_is_unknown(changes: dict[str, object]) -> None:
    submitter = {**this_process(), **changes}
    assert has_ended(submitter) is None
    assert not is_interrupted(submitter, time.time() - 2 * GRACE_SECONDS)
    assert is_interrupted(submitter, time.time() - 2 * OTHER_MACHINE_SECONDS)


def test_pid_of_a_later_process_is_an_ended_process() -> None:
    assert has_ended({**this_process(), "started": "0"}) is True
