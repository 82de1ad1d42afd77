"""Jobs and sweeps as rich output; texts of jobs are escaped."""

from __future__ import annotations

import re
from enum import Enum
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from torchx_notebook.plots import parallel_coordinates
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


def element(number: int, **parameters: Any) -> Any:
    return SimpleNamespace(
        number=number,
        parameters=parameters,
        state=Named.SUCCEEDED,
        submitted=1.0,
        started=None,
        ended=2.5,
        reason=ODD,
    )


def output(elements: list[Any], metrics: Any = None) -> SweepOutput:
    counts: Any = {Named.SUCCEEDED: len(elements)}
    found = SimpleNamespace(handle="sweep://torchx/a", state=AppState.SUCCEEDED, counts=counts)
    return SweepOutput(found, elements, metrics)


def test_output_of_a_sweep_has_a_row_for_each_element() -> None:
    text = output([element(3, lr=0.1, api_token="abc")])._repr_html_()
    assert "<td" in text
    assert ">1.5 s<" in text
    assert "0.1" in text
    assert "abc" not in text
    assert "<script" not in text


@pytest.mark.parametrize(
    ("metric", "best"), [("val_loss", 1), ("accuracy", 0), ("unknown", 1), ("duration", 0)]
)
def test_plot_of_a_sweep_marks_the_best_element(metric: str, best: int) -> None:
    elements = [element(n, lr=10.0**-n, kind=f"k{n % 2}") for n in range(3)]
    metrics = {0: {metric: 0.5}, 1: {metric: 0.25}, 2: {metric: float("nan"), "note": ODD}}
    if metric == "duration":
        metrics = {}
    text = output(elements, metrics)._repr_html_()
    lines = re.findall(r"<polyline .*?</polyline>", text)
    assert len(lines) == 3
    assert [index for index, line in enumerate(lines) if "#d9822b" in line] == [best]
    assert f">{best} ★<" in text
    assert [">lr<" in text, ">kind<" in text, f">{metric}<" in text] == [True] * 3
    assert "<script" not in text


def test_plot_of_texts_that_are_markup_is_escaped() -> None:
    plot = parallel_coordinates([{ODD: ODD, "n": 1}, {ODD: "a", "n": "2"}], [ODD, "n"], None)
    ElementTree.fromstring(plot)  # noqa: S314 - our own text
    assert "<script" not in plot
    assert plot.count("<polyline") == 2


@pytest.mark.parametrize("rows", [[], [{}], [{"x": 1.0}], [{"x": None, "y": float("nan")}]])
def test_no_plot_without_values_on_two_axes(rows: Any) -> None:
    assert parallel_coordinates(rows, ["x", "y"], None) == ""


def test_axis_of_large_ranges_is_logarithmic() -> None:
    plot = parallel_coordinates([{"x": 10.0**n, "y": n} for n in range(3)], ["x", "y"], None)
    heights = [float(y) for y in re.findall(r'points="60,([\d.]+)', plot)]
    assert heights == [236.0, 136.0, 36.0]
