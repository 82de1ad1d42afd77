"""Tests of what commands show while they wait for an app, and when the app has ended."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from torchx_cli.launch.reports import StateChanges
from torchx_cli.logs.error_lines import LAST_LINES, error_line
from torchx_specs import AppState
from torchx_specs.errors import RequestError
from torchx_specs.model.status import AppStatus, ReplicaStatus, RoleStatus

HANDLE = "fake://torchx/job-0"
P, R, F, S = AppState.PENDING, AppState.RUNNING, AppState.FAILED, AppState.SUCCEEDED


def status(state: AppState, msg: str = "", restarts: int = 0, running: str = "") -> AppStatus:
    replicas = [ReplicaStatus(k, R if c == "R" else P, "main", "") for k, c in enumerate(running)]
    roles = [RoleStatus("main", replicas)] if running else []
    return AppStatus(state, restarts, msg, roles=roles)


class TestStateChanges:
    def shown(self, caplog: pytest.LogCaptureFixture, statuses: list[AppStatus]) -> list[str]:
        caplog.set_level(logging.INFO)
        changes = StateChanges()
        for one in statuses:
            changes.observe(one)
        return caplog.messages

    def test_each_state_and_each_reason_once(self, caplog: pytest.LogCaptureFixture) -> None:
        waits = [status(P, "ErrImagePull")] * 3 + [status(P, "Too many pods")] * 2
        assert self.shown(caplog, [*waits, status(R), status(R), status(S)]) == [
            "PENDING: ErrImagePull",
            "PENDING: Too many pods",
            "RUNNING",
        ]

    def test_an_app_that_runs_at_once_shows_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        runs = [status(R, running="PP"), status(R, running="RP"), status(R, running="RR")]
        assert self.shown(caplog, [*runs, status(S)]) == []

    def test_a_reason_whose_numbers_change_is_shown_once_a_minute(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        changes = StateChanges(clock=iter(range(130)).__next__)
        for second in range(130):
            changes.observe(status(P, f"position {second} in the queue"))
        assert caplog.messages == [
            "PENDING: position 0 in the queue",
            "PENDING: position 60 in the queue",
            "PENDING: position 120 in the queue",
        ]

    def test_a_restart_is_shown(self, caplog: pytest.LogCaptureFixture) -> None:
        steps = [status(R), status(P, "requeued", 1), status(R, restarts=1), status(R, restarts=2)]
        assert self.shown(caplog, steps) == [
            "restart 1: PENDING: requeued",
            "RUNNING",
            "restart 2: RUNNING",
        ]


def failed_app(plugin: Any, count: int = 30) -> None:
    """Make ``job-0`` a failed app: replica 1, with ``count`` log lines, failed; SIGTERM ended 0."""
    app = plugin.apps["job-0"]
    app.states = [F]
    codes = (-15, 7)
    replicas = [
        ReplicaStatus(k, F, "main", "", exit_code=code, node="n3") for k, code in enumerate(codes)
    ]
    app.roles = [RoleStatus("main", replicas)]
    app.logs["main", 1] = [f"line {k} \x1b]52;c;x\x07\n" for k in range(count)]


def test_the_end_of_a_failed_app_names_the_replica_its_code_and_its_last_lines(
    cli: Any, plugin: Any, components: str
) -> None:
    cli("run", "comp.py:job", "--replicas", "2")
    failed_app(plugin)
    result = cli("wait", HANDLE)
    assert (result.code, result.out) == (1, "FAILED\n")
    assert "job finished: FAILED: main/1 on n3: exit code 7" in result.err
    assert "the last lines of the standard error of main/1:" in result.err
    shown = [line for line in result.err.splitlines() if line.startswith("main/1 line")]
    assert len(shown) == LAST_LINES
    assert shown[-1].startswith("main/1 line 29")
    assert f"'torchx log {HANDLE}/main/1' and 'torchx status {HANDLE}' show more" in result.err


def test_the_program_says_why_it_failed(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job", "--replicas", "2")
    failed_app(plugin)
    lines = [
        "Traceback (most recent call last):\n",
        "torch.OutOfMemoryError: CUDA: 2 GiB\n",
        "bye\n",
    ]
    plugin.apps["job-0"].logs["main", 1] += lines
    error = "torch.OutOfMemoryError: CUDA: 2 GiB"
    last = cli("wait", HANDLE).err.splitlines()[-1]
    assert f"{error} in main/1; 'torchx log {HANDLE}/main/1'" in last
    text = cli("status", HANDLE).out.splitlines()
    assert text[:2] == ["FAILED: main/1 on n3: exit code 7", f"    Error: {error}"]
    for command in ("status", "wait"):
        data = json.loads(cli(command, "--json", HANDLE).out)
        assert data["first_failure"]["error_line"] == error


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("KeyError", True),
        ("ValueError: password=hunter2hunter2", True),
        ("  raise ValueError('x')", False),
        ("fatal: not a git repository", True),
        ("bash: error: no", True),
        ("Segmentation fault (core dumped)", True),
        ("loss error: 0.5 at step 3", False),
        ("Errors are fine", False),
    ],
)
def test_lines_that_name_an_error(line: str, found: bool) -> None:
    text = error_line(["begin", line, "end"])
    assert bool(text) is found
    assert "hunter2" not in text


def test_the_end_is_reported_without_a_log(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job", "--replicas", "2")
    failed_app(plugin)
    plugin.apps["job-0"].logs.clear()
    result = cli("wait", HANDLE)
    assert result.code == 1
    assert "the log of main/1 is not available" in result.err
    assert "Traceback" not in result.err


def test_a_failure_without_output_is_no_missing_log(cli: Any, plugin: Any, components: str) -> None:
    """A scheduler with one log refuses the request for standard error; the log itself is empty."""
    cli("run", "comp.py:job", "--replicas", "2")
    failed_app(plugin, count=0)
    app = plugin.apps["job-0"]

    class OneLog(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            if app.asked[-1]["streams"] is not None:
                raise RequestError("both streams are one log")
            return super().__getitem__(key)

    app.logs = OneLog(app.logs)
    result = cli("wait", HANDLE)
    assert result.code == 1
    assert "is not available" not in result.err


def test_logs_that_were_shown_are_not_repeated(cli: Any, plugin: Any, components: str) -> None:
    result = cli("run", "--log", "-cfg", "end=FAILED", "comp.py:job")
    assert result.code == 1
    assert result.err.count("hello from 0") == 1
    assert "job finished: FAILED: main/0" in result.err


def test_wait_shows_why_the_app_waits(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    app = plugin.apps["job-0"]
    app.states, app.msg = [P, P, R, S], "QOSMaxJobsPerUserLimit"
    result = cli("wait", HANDLE)
    assert (result.code, result.out) == (0, "SUCCEEDED\n")
    assert result.err.count("PENDING: QOSMaxJobsPerUserLimit") == 1
    assert "RUNNING" in result.err


def test_following_logs_shows_why_the_app_waits(cli: Any, plugin: Any, components: str) -> None:
    cli("run", "comp.py:job")
    app = plugin.apps["job-0"]
    app.states, app.msg = [P, P, R, S], "Priority"
    result = cli("log", "--tail", HANDLE)
    assert result.out == "main/0 hello from 0\n"
    assert result.err.count("PENDING: Priority") == 1


def test_run_logs_state_and_address_of_an_app_that_it_leaves(
    cli: Any, plugin: Any, components: str
) -> None:
    result = cli("run", "comp.py:job")
    assert "INFO     PENDING" in result.err
    assert "AppStatus" not in result.err
