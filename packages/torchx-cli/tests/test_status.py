"""Tests of ``torchx status``: its text and data, pending reasons, and ``--watch``."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from torchx_cli.launch.reports import StateChanges
from torchx_cli.output.status_text import status_data, status_text, summary
from torchx_specs import AppState
from torchx_specs.model.status import AppStatus, AttemptStatus, ReplicaStatus, RoleStatus

NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)
HANDLE = "fake://torchx/job-0"


def replicas(states: str, **fields: Any) -> list[ReplicaStatus]:
    names = {"F": "FAILED", "C": "CANCELLED", "R": "RUNNING", "S": "SUCCEEDED", "P": "PENDING"}
    return [
        ReplicaStatus(k, AppState[names[state]], "trainer", "h", **fields)
        for k, state in enumerate(states)
    ]


def error_file(message: str, timestamp: int) -> str:
    return json.dumps({"message": {"message": message, "extraInfo": {"timestamp": timestamp}}})


def app(state: AppState, *roles: list[ReplicaStatus], **fields: Any) -> AppStatus:
    statuses = [RoleStatus(members[0].role, members) for members in roles]
    return AppStatus(state, roles=statuses, **fields)


def test_the_first_line_names_the_first_failed_replica_and_its_error() -> None:
    members = replicas("FFCC", node="n1", exit_code=1)
    members[0].structured_error_msg = error_file("RuntimeError: Broken pipe", 1700000009)
    members[1].structured_error_msg = error_file("CUDA out of memory", 1700000001)
    members[1].node = "n9"
    status = app(
        AppState.FAILED, members, started=NOW - timedelta(minutes=12, seconds=3), ended=NOW
    )
    assert summary(status, NOW) == (
        "FAILED after 12 min 3 s: trainer/1 on n9: exit code 1, CUDA out of memory"
    )


@pytest.mark.parametrize("code", [-15, 137, 143])
def test_replicas_that_were_ended_after_the_failure_are_not_the_first(code: int) -> None:
    members = replicas("FFF", exit_code=code)
    members[2].exit_code = 3
    assert summary(app(AppState.FAILED, members)) == "FAILED: trainer/2: exit code 3"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (app(AppState.FAILED, msg="the supervisor died"), "FAILED: the supervisor died"),
        (app(AppState.FAILED, replicas("F"), msg="no\nspace"), "FAILED: trainer/0: no space"),
        (
            app(AppState.FAILED, replicas("F", exit_code=-9)),
            "FAILED: trainer/0: killed by signal 9 (SIGKILL)",
        ),
        (
            app(AppState.FAILED, replicas("F", exit_code=137, reason="OOMKilled")),
            "FAILED: trainer/0: exit code 137 (SIGKILL), OOMKilled",
        ),
        (
            app(AppState.RUNNING, replicas("RRPP"), started=NOW - timedelta(hours=2)),
            "RUNNING for 2 h: 2 of 4 replicas running",
        ),
        (app(AppState.RUNNING, replicas("SRPS")), "RUNNING: 1 of 4 replicas running, 2 succeeded"),
        (app(AppState.RUNNING, replicas("RR")), "RUNNING"),
        (
            app(AppState.PENDING, replicas("PP", reason="Unschedulable: 0/3 nodes"), submitted=NOW),
            "PENDING for 0 s: Unschedulable: 0/3 nodes",
        ),
        (app(AppState.PENDING, msg="Resources"), "PENDING: Resources"),
        (app(AppState.SUCCEEDED, started=NOW, ended=NOW), "SUCCEEDED after 0 s"),
        (app(AppState.CANCELLED, msg="by the user"), "CANCELLED: by the user"),
    ],
)
def test_the_first_line(status: AppStatus, expected: str) -> None:
    assert summary(status, NOW) == expected


def test_replicas_are_grouped_with_failed_ones_first() -> None:
    members = replicas("SSFFRFSS", exit_code=0)
    for k, code in ((2, 1), (3, 1), (5, 2)):
        members[k].exit_code = code
    members[2].restarts = 2
    reader = [ReplicaStatus(0, AppState.RUNNING, "reader", "h")]
    text = status_text(HANDLE, app(AppState.FAILED, members, reader), now=NOW)
    assert text.splitlines()[4:] == [
        "trainer: 8 replicas: 3 FAILED, 1 RUNNING, 4 SUCCEEDED; 2 restarts",
        "    FAILED 2 (2-3): exit code 1",
        "    FAILED 1 (5): exit code 2",
        "    RUNNING 1 (4)",
        "    SUCCEEDED 4 (0-1,6-7)",
        "reader: 1 replica: 1 RUNNING",
    ]
    shown = status_text(HANDLE, app(AppState.FAILED, members, reader), all_replicas=True)
    assert " *trainer[0]:SUCCEEDED (exitcode: 0)" in shown.splitlines()
    assert "  trainer[5]:FAILED (exitcode: 2)" in shown.splitlines()


def test_the_replica_that_failed_first_is_above_those_that_it_ended() -> None:
    members = replicas("FFFF", exit_code=-15)
    members[2].exit_code = 1
    text = status_text(HANDLE, app(AppState.FAILED, members), now=NOW)
    assert text.splitlines()[-2:] == [
        "    FAILED 1 (2): exit code 1",
        "    FAILED 3 (0-1,3): killed by signal 15 (SIGTERM)",
    ]


def test_the_times_are_shown() -> None:
    status = app(
        AppState.FAILED,
        num_restarts=2,
        submitted=NOW - timedelta(hours=3),
        started=NOW - timedelta(hours=2),
        ended=NOW - timedelta(hours=1),
        ui_url="http://ui",
    )
    names = [line.partition(":")[0].strip() for line in status_text(HANDLE, status).splitlines()]
    assert names == [
        *("FAILED after 1 h", "App", "State", "Submitted", "Started", "Ended"),
        *("Num Restarts", "UI URL"),
    ]
    text = status_text(HANDLE, status, now=NOW)
    assert "    State: FAILED\n" in text
    assert "(3 h ago)\n    Started: " in text
    assert "    Num Restarts: 2\n" in text


def test_a_thousand_replicas_are_shown_in_short_lines() -> None:
    members = replicas("F" * 500 + "C" * 500)
    for k in range(0, 500, 2):
        members[k].exit_code = 1
    text = status_text(HANDLE, app(AppState.FAILED, members))
    assert max(map(len, text.splitlines())) < 120


ATTEMPTS = [
    AttemptStatus(0, NOW, NOW + timedelta(minutes=5), "time-limit", None, 40, ("n1", "n2")),
    AttemptStatus(1, NOW, NOW + timedelta(minutes=1), "preempted", 40, 40),
    AttemptStatus(2, NOW, None, None, 40, 60),
]


def test_each_attempt_has_a_line() -> None:
    status = app(AppState.RUNNING, replicas("R"), num_restarts=2, attempts=ATTEMPTS)
    text = status_text(HANDLE, status, now=NOW + timedelta(minutes=10))
    lines = [line for line in text.splitlines() if "Attempt " in line]
    assert [line.partition(", ")[2] for line in lines] == [
        "ran for 5 min, on n1,n2, time-limit, committed step 40",
        "ran for 1 min, preempted, went on after step 40",
        "running for 10 min, went on after step 40, committed step 60",
    ]
    assert lines[2].startswith("    Attempt 3: started 20")


def test_attempts_are_data_of_a_status() -> None:
    data = status_data(HANDLE, app(AppState.RUNNING, attempts=ATTEMPTS))
    assert data["attempts"][0] == {
        "number": 0,
        "started": "2026-11-23T12:00:00Z",
        "ended": "2026-11-23T12:05:00Z",
        "reason": "time-limit",
        "resume_step": None,
        "committed_step": 40,
        "nodes": ("n1", "n2"),
    }
    assert status_data(HANDLE, app(AppState.RUNNING))["attempts"] == []


def test_restart_says_why_the_attempt_before_ended(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    changes = StateChanges()
    changes.observe(app(AppState.RUNNING, attempts=ATTEMPTS[:1]))
    changes.observe(app(AppState.RUNNING, num_restarts=2, attempts=ATTEMPTS))
    assert caplog.messages == ["restart 2 after preempted: RUNNING"]


# -- torchx status


def test_status_shows_text_and_data(cli: Any, plugin: Any) -> None:
    when = {"submitted": NOW, "started": NOW, "ended": NOW + timedelta(seconds=5)}
    members = replicas("FC", exit_code=1, node="n9")
    members[0].structured_error_msg = error_file("CUDA out of memory", 1700000001)
    plugin.add(
        "job-0",
        "job",
        states=[AppState.FAILED],
        times=when,
        roles=[RoleStatus("trainer", members)],
    )
    result = cli("status", HANDLE)
    assert result.code == 0
    first = "FAILED after 5 s: trainer/0 on n9: exit code 1, CUDA out of memory"
    assert result.out.splitlines()[0] == first
    assert "trainer[1]" in cli("status", "--replicas", HANDLE).out
    data = json.loads(cli("status", "--json", HANDLE).out)
    assert data["summary"] == first
    assert (data["submitted"], data["ended"]) == ("2026-11-23T12:00:00Z", "2026-11-23T12:00:05Z")
    assert data["first_failure"] == {
        "role": "trainer",
        "replica": 0,
        "node": "n9",
        "exit_code": 1,
        "reason": None,
        "message": "CUDA out of memory",
        "error_line": None,
    }


def test_watch_writes_a_line_for_each_change(cli: Any, plugin: Any) -> None:
    states = [AppState.PENDING, AppState.PENDING, AppState.RUNNING, AppState.RUNNING]
    plugin.add("job-0", "job", states=[*states, AppState.SUCCEEDED])
    lines = cli("status", "--watch", HANDLE).out.splitlines()
    assert lines[:4] == ["PENDING", "RUNNING", "SUCCEEDED", "SUCCEEDED"]
    plugin.apps["job-0"].states = [AppState.RUNNING, AppState.SUCCEEDED]
    assert json.loads(cli("status", "--watch", "--json", HANDLE).out)["state"] == "SUCCEEDED"
    assert cli("status", "--watch", "fake://torchx/missing").code == 1


def test_hostile_text_of_a_scheduler_stays_one_line(cli: Any, plugin: Any) -> None:
    members = replicas("F", reason="\033]52;c;eA==\007\nState: SUCCEEDED", node="n\n9")
    plugin.add("job-0", "job", states=[AppState.FAILED], roles=[RoleStatus("trainer", members)])
    lines = cli("status", HANDLE).out.splitlines()
    assert lines[0] == "FAILED: trainer/0 on n 9: \033]52;c;eA==\007 State: SUCCEEDED"
    assert len(lines) == 6


WATCH = """
import sys
from datetime import datetime, timezone
from torchx_cli.output.terminal import can_replace_text
from torchx_cli.output.live_region import LiveRegion
assert can_replace_text(sys.stdout)
region = LiveRegion(sys.stdout, 1000)
for lines in (["one", "two\\x1b]0;title\\x07"], ["three"] * 100, ["end"]):
    region.draw("", lines)
"""


def test_watch_replaces_the_text_on_a_terminal() -> None:
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-c", WATCH])  # noqa: S606
    shown = b""
    while select.select([fd], [], [], 60)[0]:
        try:
            data = os.read(fd, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, shown
    text = shown.decode()
    assert "\033]0" not in text
    assert "\033[2F\033[?7lthree" in text
    assert "… 78 more\033[K" in text
    assert text.endswith("\033[23F\033[?7lend\033[K\r\n\033[?7h\033[J")


def test_text_is_not_replaced_on_a_dumb_terminal() -> None:
    code = (
        "import sys; from torchx_cli.output.terminal import *; print(can_replace_text(sys.stdout))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_watch_waits_for_the_events_of_the_scheduler(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = type(plugin.create("torchx"))
    waited: list[tuple[str, float]] = []

    def wait(self: Any, app_id: str, timeout: float) -> bool:
        waited.append((app_id, timeout))
        return True

    monkeypatch.setattr(scheduler, "wait", wait)
    monkeypatch.setattr(scheduler, "features", replace(scheduler.features, watch=True))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("polled"))
    cli("run", "comp.py:job")
    plugin.apps["job-0"].states = [AppState.PENDING] * 5 + [AppState.SUCCEEDED]
    result = cli("status", "--watch", HANDLE)
    first, second = result.out.splitlines()[:2]
    assert (first.startswith("PENDING"), second) == (True, "SUCCEEDED")
    assert waited == [("job-0", 2.0)] * 5


def test_watch_of_an_app_that_is_deleted_is_exit_code_1(
    cli: Any, plugin: Any, components: str
) -> None:
    assert cli("status", "--watch", HANDLE).code == 1
    assert cli("status", "--watch", "--json", HANDLE).code == 1


def test_the_first_failed_replica_is_the_one_that_the_scheduler_names() -> None:
    members = replicas("FFF", exit_code=3, node="n1")
    status = app(AppState.FAILED, members, msg="trainer/1 on n1: exit code 3")
    assert summary(status) == "FAILED: trainer/1 on n1: exit code 3"


def test_the_first_failed_replica_is_the_one_that_ended_first() -> None:
    members = replicas("FFFF", exit_code=3)
    for k, seconds in enumerate((9, 8, 4)):
        members[k].ended = NOW + timedelta(seconds=seconds)
    members[2].exit_code = -15
    assert summary(app(AppState.FAILED, members)) == "FAILED: trainer/1: exit code 3"


@pytest.mark.parametrize(
    ("code", "reason", "cause"),
    [
        (-15, "killed by signal 15 (SIGTERM)", "killed by signal 15 (SIGTERM)"),
        (137, "exit code 137 (SIGKILL)", "exit code 137 (SIGKILL)"),
        (137, "OOMKilled: exit code 137", "OOMKilled: exit code 137"),
        (13, "exit code 137", "exit code 13, exit code 137"),
        (3, "", "exit code 3"),
    ],
)
def test_an_exit_code_that_the_reason_has_is_not_repeated(
    code: int, reason: str, cause: str
) -> None:
    members = replicas("F", exit_code=code, reason=reason)
    assert summary(app(AppState.FAILED, members)) == f"FAILED: trainer/0: {cause}"


def test_replicas_have_their_times() -> None:
    members = replicas("FRP")
    members[0].started, members[0].ended = NOW - timedelta(seconds=90), NOW - timedelta(seconds=30)
    members[1].started = NOW - timedelta(seconds=80)
    text = status_text(HANDLE, app(AppState.RUNNING, members), all_replicas=True, now=NOW)
    shown = text.splitlines()[-3:]
    assert shown[0].startswith(" *trainer[0]:FAILED (no reply file); started 2026-11-23 ")
    assert shown[0].endswith(", ran for 1 min")
    assert shown[1].endswith(", running for 1 min 20 s")
    assert shown[2] == "  trainer[2]:PENDING"


def test_an_app_that_runs_on_after_a_failure_says_so() -> None:
    members = replicas("RFR", exit_code=7)
    assert summary(app(AppState.RUNNING, members), NOW) == (
        "RUNNING: 2 of 3 replicas running; trainer/1 failed: exit code 7"
    )


def test_a_reason_that_is_only_the_state_is_left_out() -> None:
    assert summary(app(AppState.PENDING, msg="pending"), NOW) == "PENDING"


def test_a_long_error_is_shortened_and_says_so() -> None:
    error = json.dumps({"message": {"message": "x" * 5000}})
    replica = ReplicaStatus(0, AppState.FAILED, "main", "host", structured_error_msg=error)
    text = summary(AppStatus(AppState.FAILED, roles=[RoleStatus("main", [replica])]))
    assert len(text) < 400
    assert text.endswith("xxx... (shortened; --replicas shows more)")
