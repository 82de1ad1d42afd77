"""Tests of the states and reasons that are derived from containers."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_docker.labels import LABEL_TIME_LIMIT
from torchx_sched_docker.states import app_state, replica_state, state_reason
from torchx_specs import AppState

SUCCEEDED, FAILED, RUNNING = AppState.SUCCEEDED, AppState.FAILED, AppState.RUNNING


@pytest.mark.parametrize(
    ("status", "exit_code", "name", "state"),
    [
        ("exited", 0, "x", AppState.SUCCEEDED),
        ("exited", 1, "x", AppState.FAILED),
        ("exited", 0, "x_cancelled", AppState.CANCELLED),
        ("running", None, "x_cancelled", AppState.RUNNING),
        ("created", None, "x_cancelled", AppState.CANCELLED),
        ("a state of a later release", None, "x", AppState.UNKNOWN),
    ],
)
def test_state_of_a_replica(status: str, exit_code: int | None, name: str, state: AppState) -> None:
    assert replica_state(status, exit_code, name) == state


@pytest.mark.parametrize(
    ("replicas", "state"),
    [
        ([SUCCEEDED, SUCCEEDED], SUCCEEDED),
        ([SUCCEEDED, FAILED], FAILED),
        ([FAILED, AppState.CANCELLED], AppState.CANCELLED),
        ([SUCCEEDED, AppState.PENDING, RUNNING], RUNNING),
        ([SUCCEEDED, AppState.PENDING, AppState.SUBMITTED], AppState.SUBMITTED),
    ],
)
def test_state_of_an_app(replicas: list[AppState], state: AppState) -> None:
    assert app_state(replicas) == state


def reason(name: str = "/x", **state: Any) -> str:
    return state_reason({"Name": name, "State": state, "HostConfig": {"Memory": 16 << 20}})


def test_reason_gives_exit_code_and_signal() -> None:
    assert reason(Status="exited", ExitCode=0) == ""
    assert reason(Status="exited", ExitCode=1) == "exit code 1"
    assert reason(Status="exited", ExitCode=143) == "exit code 143 (SIGTERM)"
    assert reason(Status="restarting", ExitCode=2) == "restarting after exit code 2"


def test_reason_gives_the_memory_limit_after_an_oom_kill() -> None:
    assert "16 MB" in reason(Status="exited", ExitCode=137, OOMKilled=True)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # A busy engine does not always set OOMKilled.
        ("/x", "exit code 137 (SIGKILL), perhaps because it was over its limit of 16 MB"),
        ("/x_cancelled", "cancelled; exit code 137 (SIGKILL)"),
        ("/x_done", "stopped after the success of other roles; exit code 137 (SIGKILL)"),
    ],
)
def test_reason_after_sigkill(name: str, expected: str) -> None:
    assert reason(name, Status="exited", ExitCode=137) == expected


def test_reason_gives_the_error_of_the_engine_on_one_line() -> None:
    assert reason(Status="created", ExitCode=127, Error="no\nsuch file") == "no such file"


@pytest.mark.parametrize(
    ("ended", "expected"),
    [
        ("2026-01-02T03:05:04Z", "time limit of 60 s reached (option time)"),
        ("2026-01-02T03:04:44Z", "exit code 143 (SIGTERM)"),
    ],
)
def test_reason_says_that_the_time_limit_was_reached(ended: str, expected: str) -> None:
    state = {"Status": "exited", "ExitCode": 143, "StartedAt": "2026-01-02T03:04:04Z"}
    config = {"Labels": {LABEL_TIME_LIMIT: "60"}}
    attrs = {"Name": "/x", "State": {**state, "FinishedAt": ended}, "Config": config}
    assert state_reason(attrs) == expected


def test_reason_says_that_a_container_was_cancelled() -> None:
    assert reason("/x_cancelled", Status="exited", ExitCode=143).startswith("cancelled")
