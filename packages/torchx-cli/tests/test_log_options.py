"""Tests of the options of ``torchx log`` that select replicas, output and times, or wait."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from torchx_cli.arguments.options import parse_when
from torchx_specs import AppState
from torchx_specs.model.status import ReplicaStatus, RoleStatus
from torchx_specs.schedulers import Stream

HANDLE = "fake://torchx/job-0"


@pytest.fixture
def app(cli: Any, plugin: Any, components: str) -> Any:
    """Submit an app with three replicas, and return it as a running app."""
    cli("run", "comp.py:job", "--replicas", "3")
    found = plugin.apps["job-0"]
    found.states = [AppState.RUNNING]
    return found


@pytest.mark.parametrize("state", [AppState.SUBMITTED, AppState.PENDING])
def test_log_of_an_app_that_has_not_started_returns_at_once(
    cli: Any, app: Any, state: AppState
) -> None:
    app.states = [state]
    for words in ([], ["--failed"], ["-f", "--failed"], ["-n", "3"]):
        result = cli("log", *words, HANDLE)
        assert (result.code, result.out) == (0, "")
        assert "has not started, so it has no logs; 'torchx log -f' waits for them" in result.err
    assert app.asked == []


@pytest.mark.parametrize("flag", ["-f", "--follow", "-t", "--tail"])
def test_follow_waits_until_the_app_starts(cli: Any, app: Any, flag: str) -> None:
    app.states = [AppState.PENDING, AppState.PENDING, AppState.RUNNING]
    assert len(cli("log", flag, HANDLE).out.splitlines()) == 3
    assert all(asked["tail"] for asked in app.asked)


@pytest.mark.parametrize(
    ("words", "stream"),
    [
        ([], None),
        (["--stdout"], Stream.STDOUT),
        (["--stderr"], Stream.STDERR),
        (["--stdout", "--stderr"], Stream.COMBINED),
        (["--stderr", "--streams", "stderr"], Stream.STDERR),
    ],
)
def test_flags_select_the_output(
    cli: Any, app: Any, words: list[str], stream: Stream | None
) -> None:
    assert cli("log", *words, f"{HANDLE}/main/0").code == 0
    assert [asked["streams"] for asked in app.asked] == [stream]


def test_contradicting_outputs_are_refused(cli: Any, app: Any) -> None:
    result = cli("log", "--stdout", "--streams", "stderr", HANDLE)
    assert result.code == 2
    assert result.error.startswith("log: --stdout and --streams stderr contradict each other")


def fail_replicas(app: Any, *failed: int) -> None:
    app.states = [AppState.FAILED]
    states = [AppState.FAILED if k in failed else AppState.SUCCEEDED for k in range(3)]
    replicas = [ReplicaStatus(k, state, "main", "h") for k, state in enumerate(states)]
    app.roles = [RoleStatus("main", replicas)]


def test_failed_shows_only_replicas_that_failed(cli: Any, app: Any) -> None:
    fail_replicas(app, 1, 2)
    shown = ["main/1 hello from 1", "main/2 hello from 2"]
    assert sorted(cli("log", "--failed", HANDLE).out.splitlines()) == shown
    result = cli("log", "--failed", "-f", "--stderr", "-n", "1", "--regex", "2$", HANDLE)
    assert result.out == "main/2 hello from 2\n"
    assert cli("log", "--failed", f"{HANDLE}/main/0-1").out == "main/1 hello from 1\n"


def test_failed_says_that_no_replica_has_failed(cli: Any, app: Any) -> None:
    fail_replicas(app)
    result = cli("log", "--failed", HANDLE)
    assert (result.code, result.out) == (0, "")
    assert f"no replica of {HANDLE} has failed" in result.err


def test_since_after_until_is_refused(cli: Any, app: Any) -> None:
    result = cli("log", "--since", "5m", "--until", "10m", HANDLE)
    assert result.code == 2
    assert result.error.startswith("log: --since must be before --until")


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-11-21T10:00:00Z", 0),
        ("2026-11-21t10:00:00z", 0),
        ("2026-11-21T12:00:00+02:00", 0),
        ("2026-11-21T10:00:00.5Z", 500_000),
        ("2026-11-21T10:00:00.123456789Z", 123_456),
    ],
)
def test_times_are_read_as_in_rfc_3339(text: str, microsecond: int) -> None:
    expected = datetime(2026, 11, 21, 10, 0, 0, microsecond, tzinfo=timezone.utc)
    assert parse_when(text).astimezone(timezone.utc) == expected


def test_durations_are_before_now() -> None:
    now = datetime(2026, 11, 21, 10)
    assert parse_when("1h30m", now) == now - timedelta(minutes=90)
