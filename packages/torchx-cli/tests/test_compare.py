"""Tests of ``torchx compare``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.trackers import recorded as recorded_module
from torchx_kit.trackers.recorded import Metric
from torchx_specs import AppState

START = datetime(2026, 1, 2, tzinfo=timezone.utc)


class MemoryTracker:
    """A tracker with the values of two runs."""

    def __init__(self, config: str | None) -> None:
        self._values: dict[str, dict[str, list[float]]] = {
            "fake://torchx/train-0": {"loss": [3.0, 1.0, 2.0], "acc": [0.5]},
            "fake://torchx/train-1": {"loss": [float("nan")]},
        }

    def run_ids(self) -> list[str]:
        return list(self._values)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        found = {name: values[-1] for name, values in self._values.get(run_id, {}).items()}
        return {**found, "note": "|a"} if run_id.endswith("0") else found

    def history(self, run_id: str) -> Mapping[str, Sequence[tuple[float, float]]]:
        return {
            name: list(enumerate(values)) for name, values in self._values.get(run_id, {}).items()
        }


@pytest.fixture
def two_runs(cli: Any, plugin: Any, components: str) -> None:
    for lr in ("0.3", "0.5"):
        words = ["--env", f"API_TOKEN=secret-{lr}", "comp.py:script", "--name=train", "--"]
        assert cli("run", *words, "--lr", lr).code == 0
    plugin.apps["train-0"].times = {"started": START, "ended": START + timedelta(seconds=90)}
    plugin.apps["train-0"].states = [AppState.SUCCEEDED]
    plugin.apps["train-1"].states = [AppState.FAILED]


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_TRACKERS", "memory")
    monkeypatch.setattr(recorded_module, "find_factory", lambda name: MemoryTracker)


def table(text: str) -> list[list[str]]:
    rows = [line.split("  ") for line in text.splitlines()]
    return [[cell.strip() for cell in row if cell.strip()] for row in rows[:1] + rows[2:]]


def test_the_table_has_what_differs(two_runs: None, cli: Any) -> None:
    assert table(cli("compare", "@2", "@1").out) == [
        ["handle", "state", "duration", "lr", "env.API_TOKEN"],
        ["fake://torchx/train-0", "SUCCEEDED", "90.0", "0.3", "***"],
        ["fake://torchx/train-1", "FAILED", "0.5", "***"],
    ]


def test_data_has_the_fields_and_metrics(two_runs: None, tracker: None, cli: Any) -> None:
    first, second = json.loads(cli("compare", "--json", "@2", "@1").out)
    assert (first["state"], first["duration"], second["duration"]) == ("SUCCEEDED", 90.0, None)
    assert first["fields"]["lr"] == "0.3"
    assert first["metrics"]["loss"] == {"last": 2.0, "min": 1.0, "max": 3.0, "count": 3}
    assert first["metrics"]["note"] == {"last": "|a", "min": None, "max": None, "count": 1}
    assert second["metrics"]["loss"] == {"last": "NaN", "min": None, "max": None, "count": 1}
    everything = json.loads(cli("compare", "--json", "--all", "@1").out)[0]["fields"]
    assert everything["scheduler"] == "fake"
    assert everything["name"] == "train"


@pytest.mark.parametrize("output", ["json", "table", "csv", "markdown"])
def test_secrets_in_arguments_of_roles_are_masked(cli: Any, plugin: Any, output: str) -> None:
    for name, secret in (("one", "one11"), ("two", "two22")):
        role: dict[str, Any] = {
            "name": "r",
            "image": "i",
            "entrypoint": "e",
            "args": ["--api-key", secret],
        }
        role["resource"] = {"cpu": 1, "gpu": 0, "memMB": 1}
        Path(f"{name}.json").write_text(json.dumps({"name": name, "roles": [role]}))
        assert cli("run", f"{name}.json").code == 0
    result = cli("compare", "--no-metrics", "-o", output, "@1", "@2")
    assert result.code == 0
    assert "args[1]" in result.out
    assert "one11" not in result.out
    assert "two22" not in result.out


def test_metrics_have_columns(two_runs: None, tracker: None, cli: Any) -> None:
    header, first, second = cli("compare", "-o", "csv", "@2", "@1").out.splitlines()
    assert header.endswith("env.API_TOKEN,loss,loss min,loss max,loss n,acc,note")
    assert first.endswith(",2.0,1.0,3.0,3,0.5,|a")
    assert second.endswith(",NaN,,,1,,")
    markdown = cli("compare", "-o", "markdown", "@2", "@1").out.splitlines()
    assert markdown[0].startswith("| handle | state |")
    assert markdown[2].endswith(r" | \|a |")
    assert "loss" not in cli("compare", "--no-metrics", "@2", "@1").out


def test_a_tracker_that_fails_is_skipped(
    two_runs: None, tracker: None, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, run_id: str) -> Mapping[str, object]:
        raise OSError("disk")

    monkeypatch.setattr(MemoryTracker, "metadata", fail)
    found = cli("compare", "@2", "@1")
    assert found.code == 0
    assert "tracker 'memory' is skipped: OSError: disk" in found.err


def test_an_app_without_a_record_has_a_state_only(cli: Any, plugin: Any) -> None:
    plugin.add("theirs-1", "theirs")
    assert table(cli("compare", "fake://torchx/theirs-1", "fake://torchx/none").out)[1:] == [
        ["fake://torchx/theirs-1", "SUCCEEDED"],
        ["fake://torchx/none", "UNKNOWN"],
    ]


def test_the_count_of_a_metric_without_a_history_is_one() -> None:
    assert Metric(3).number == 1


def test_history_shows_and_sorts_by_metrics(two_runs: None, tracker: None, cli: Any) -> None:
    data = json.loads(cli("history", "--json", "--metrics", "loss,acc").out)
    assert [(entry["number"], entry["acc"]) for entry in data] == [(1, None), (2, 0.5)]
    data = json.loads(cli("history", "--json", "--sort", "loss").out)
    assert [(entry["number"], entry["loss"]) for entry in data] == [(2, 2.0), (1, "NaN")]
    unknown = cli("history", "--sort", "los")
    assert unknown.code == 2
    assert "did you mean 'loss'?" in unknown.err


def test_a_run_that_has_only_the_values_of_steps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryTracker, "metadata", lambda self, run_id: {})
    monkeypatch.setattr(recorded_module, "find_factory", lambda name: MemoryTracker)
    [found] = recorded_module.recorded(["fake://torchx/train-0"], {"memory": None}, histories=True)
    assert found["loss"] == Metric(2.0, 1.0, 3.0, 3)
