"""Jobs and sweeps as rich output; texts of jobs are escaped."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from torchx_notebook.views import JobOutput, SweepOutput, show
from torchx_specs import AppState, AppStatus, RoleStatus
from torchx_specs.errors import UnknownAppException
from torchx_specs.model.status import ReplicaStatus

ODD = "<script>alert(1)</script>"


def status(state: AppState) -> AppStatus:
    replica = ReplicaStatus(0, state, ODD, "h", reason=f"{ODD} password=hunter2hunter2")
    return AppStatus(state, roles=[RoleStatus(ODD, [replica])])


class Named(Enum):
    """The state of an element, as torchx_sweep has it."""

    SUCCEEDED = "SUCCEEDED"


class FakeRunner:
    """Has a job that ends after some queries."""

    def __init__(self, *states: AppState) -> None:
        self._states = list(states)

    def status(self, handle: str) -> AppStatus | None:
        return status(self._states.pop(0)) if self._states else None

    def log_blocks(self, handle: str, replicas: Any, **selection: Any) -> Any:
        return iter([((ODD, 0), ["10%\r20%\n", f"{ODD}\n"]), ((ODD, 0), RuntimeError("gone"))])


def test_output_of_a_job_is_escaped_and_has_no_secrets() -> None:
    shown = JobOutput("x://torchx/1", status(AppState.FAILED), [ODD])
    text = shown._repr_html_()
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "hunter2" not in text
    assert "FAILED" in repr(shown)


def test_show_updates_until_the_job_has_ended() -> None:
    pauses: list[float] = []
    runner: Any = FakeRunner(AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED)
    shown = show("x://torchx/1", runner=runner, sleep=pauses.append)
    assert isinstance(shown, JobOutput)
    assert shown.status.state == AppState.SUCCEEDED
    assert len(pauses) == 2
    assert shown.lines == ["20%", ODD]


def test_show_of_a_missing_job_raises() -> None:
    runner: Any = FakeRunner()
    with pytest.raises(UnknownAppException):
        show("x://torchx/1", runner=runner)


def test_output_of_a_sweep_has_a_row_for_each_element() -> None:
    element = SimpleNamespace(
        number=3,
        parameters={"lr": 0.1, "api_token": "abc"},
        state=Named.SUCCEEDED,
        submitted=1.0,
        ended=2.5,
        reason=ODD,
    )
    counts: Any = {Named.SUCCEEDED: 1}
    found = SimpleNamespace(handle="sweep://torchx/a", state=AppState.SUCCEEDED, counts=counts)
    text = SweepOutput(found, [element])._repr_html_()
    assert "<td" in text
    assert "1.5 s" in text
    assert "0.1" in text
    assert "abc" not in text
    assert "<script" not in text
