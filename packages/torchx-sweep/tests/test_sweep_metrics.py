"""Tests of the metrics of trackers in the results of sweeps."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sweep_helpers import Torchx, read_json

from torchx_cli.output.printing import csv_text
from torchx_kit.trackers.recorded import run_ids
from torchx_specs.model.status import AppState
from torchx_sweep import api
from torchx_sweep.api import SweepStatus
from torchx_sweep.output import tables
from torchx_sweep.store import ElementRecord, ElementState

TRAIN = """
import sys
from torchx_tracker import app_run_from_env
app_run_from_env().add_metadata(loss=float(sys.argv[1]) * 2, seed=7)
"""

COMPONENT = """
import sys
from torchx_specs import AppDef, Resource, Role

def train(lr: float, seed: int = 0) -> AppDef:
    role = Role("main", image="", entrypoint=sys.executable, args=["train.py", str(lr)])
    role.resource = Resource(cpu=1, gpu=0, memMB=1)
    return AppDef("train", roles=[role])
"""


def tracked_sweep(torchx: Torchx, folder: Path) -> str:
    """Run a sweep whose elements record metadata, and return its handle."""
    (folder / "runs").mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "tracked.py").write_text(COMPONENT)
    (folder / ".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nprotocol=file\nroot_path={folder}/runs\n"
    )
    words = ["--grid", "lr=0.001,0.5", "--grid", "seed=0:2", "--wait"]
    ran = torchx("sweep", "tracked.py:train", *words)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_results_have_a_column_for_each_recorded_name(torchx: Torchx, tmp_path: Path) -> None:
    handle = tracked_sweep(torchx, tmp_path)
    shown = torchx("sweep", "results", handle, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [(row["lr"], row["loss"]) for row in rows] == [
        ("0.001", "0.002"),
        ("0.001", "0.002"),
        ("0.5", "1.0"),
        ("0.5", "1.0"),
    ]
    # The parameter "seed" keeps its name, so the metric gets the prefix of the tracker.
    assert [(row["seed"], row["fsspec.seed"]) for row in rows] == [("0", "7"), ("1", "7")] * 2
    data = read_json(torchx("sweep", "results", handle, "-o", "json").stdout)
    assert data[0]["metrics"] == {"loss": 0.002, "fsspec.seed": 7}
    assert "loss" in torchx("sweep", "results", handle).stdout
    assert "loss" not in torchx("sweep", "results", handle, "--no-metrics").stdout
    (tmp_path / ".torchxconfig").write_text(
        "[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nprotocol=file\nroot_path=/nonexistent/a\n"
    )
    failed = torchx("sweep", "results", handle)
    assert failed.returncode == 0
    assert "tracker 'fsspec' is skipped: " in failed.stderr


def element(number: int, handle: str) -> ElementRecord:
    return ElementRecord(number, {"lr": number}, ElementState.SUCCEEDED, 0, "s", handle)


class BulkTracker:
    """A tracker that reads many runs by one query; it counts the queries."""

    def __init__(self, runs: Mapping[str, Mapping[str, Any]]) -> None:
        self.runs = runs
        self.queries = 0

    def metadata_of_runs(self, ids: list[str]) -> dict[str, Mapping[str, Any]]:
        self.queries += 1
        return {run_id: self.runs[run_id] for run_id in ids if run_id in self.runs}


def test_a_tracker_is_queried_once_for_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = {f"kubernetes://torchx/default:train-{i}": {"loss": i, "acc": 1} for i in range(200)}
    trackers = {"one": BulkTracker(runs), "two": BulkTracker({key: {"acc": 2} for key in runs})}
    monkeypatch.setattr(
        "torchx_kit.trackers.recorded.find_factory", lambda name: lambda config: trackers[name]
    )
    elements = [element(i, f"kubernetes://torchx/default:train-{i}") for i in range(200)]
    monkeypatch.setattr(
        "torchx_runner.default_tracker.readable_trackers", lambda: dict.fromkeys(trackers)
    )
    found = api.metrics(elements)
    assert found[3] == {"loss": 3, "one.acc": 1, "two.acc": 2}
    assert len(found) == 200
    assert [tracker.queries for tracker in trackers.values()] == [1, 1]


def test_a_run_is_found_by_the_handle_that_the_job_knows() -> None:
    assert "slurm://torchx/12_3" in run_ids("slurm://torchx/12_3;main")
    assert "aws_batch://torchx/train-1" in run_ids("aws_batch://torchx/queue:train-1")
    kubernetes = run_ids("kubernetes://torchx/team:train-1.7@my%3Acontext")
    assert "kubernetes://torchx/team:train-1.7" in kubernetes
    assert run_ids("local_cwd://torchx/train-1") == ["local_cwd://torchx/train-1"]
    assert api.metrics([element(0, "")]) == {}


@pytest.mark.parametrize("start", list("=+-@\t\r"))
def test_a_cell_of_a_csv_file_is_no_formula(start: str) -> None:
    formula = f"{start}cmd|' /C calc'!A0"
    text = csv_text([formula], [[formula]])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [[f"'{formula}"]] * 2


@pytest.mark.parametrize("number", ["-1", "+2.5", "-1e-3", "-Infinity", "0"])
def test_a_number_in_a_csv_file_stays_a_number(number: str) -> None:
    assert csv_text([number], []) == f"{number}\n"


def test_no_duration_is_negative() -> None:
    """The clock may be set back during a job."""
    element = ElementRecord(0, {}, ElementState.SUCCEEDED, 0, "x", submitted=1e9, ended=9e8)
    assert tables.element_data(element)["duration"] == 0


def test_tables_mask_parameters_that_are_secrets() -> None:
    values = {"api_key": "s3cret", "url": "https://u:s3cret@h/", "lr": 0.1, "num_token": 7}
    element = ElementRecord(0, values, ElementState.FAILED, 0, "s", reason="exit code 1")
    _, rows = tables.element_rows([element], {0: {"token_loss": 2}})
    assert rows[0][1:5] == ["***", "https://u:***@h/", "0.1", "7"]
    assert "2" in rows[0]
    counts = {ElementState.FAILED: 1}
    status = SweepStatus("sweep://torchx/a", "c", "s", AppState.FAILED, counts, [element], "")
    text = tables.status_text(status)
    assert "api_key=***" in text
    assert "s3cret" not in text
