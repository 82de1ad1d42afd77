"""Tests of the MLflow tracker on a real tracking server, with SQLite."""

from __future__ import annotations

import dataclasses
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from torchx_specs.trackers.api import (
    TrackerArtifact,
)
from torchx_tracker.trackers import build_tracker
from torchx_tracker_mlflow import MLflowTracker


@pytest.fixture
def config(mlflow_server: Any, request: pytest.FixtureRequest) -> str:
    return (
        f"tracking_uri={mlflow_server.url};experiment_name={request.node.name[:60]}-{id(request)}"
    )


@pytest.fixture
def tracker(config: str) -> MLflowTracker:
    tracker = build_tracker("mlflow", config)
    assert isinstance(tracker, MLflowTracker)
    return tracker


@dataclasses.dataclass
class Optimizer:
    name: str = "sgd"
    lr: float = 0.1


def test_server_stores_tags_params_artifacts_parents_and_lineage(
    tracker: MLflowTracker, config: str, tmp_path: Path
) -> None:
    file = tmp_path / "model.pt"
    file.write_text("weights")
    tracker.add_metadata("grandparent", a=1)
    tracker.add_source("parent", "grandparent")
    tracker.add_source("run", "parent", "weights")
    tracker.add_source("run", "parent")
    tracker.add_source("child", "run")
    tracker.add_metadata("run", loss=0.5, note="é")
    tracker.add_metadata("run", loss=0.25)
    tracker.log_params_flat("run", {"optimizer": Optimizer(), "layers": [1, 2]})
    tracker.add_artifact("run", "models/best", str(file), {"epoch": 3})
    tracker.add_artifact("run", "data", "s3://bucket/data")

    reader = build_tracker("mlflow", config)
    assert reader.metadata("run") == {"loss": "0.25", "note": "é"}
    artifacts = reader.artifacts("run")
    uri = tracker.get_run("run").info.artifact_uri
    assert artifacts == {
        "data": TrackerArtifact("data", "s3://bucket/data", None),
        "models/best": TrackerArtifact(
            "models/best", f"{uri}/models/best/model.pt", {"epoch": 3, "mlflow.file_size": 7}
        ),
    }
    downloaded = tracker._client.download_artifacts(
        tracker.get_run_id("run"), "models/best/model.pt", str(tmp_path)
    )
    assert Path(downloaded).read_text() == "weights"
    assert tracker.get_run("run").data.params == {
        "optimizer.name": "sgd",
        "optimizer.lr": "0.1",
        "layers": "[1, 2]",
    }
    assert list(reader.run_ids(parent_run_id="parent")) == ["run"]
    lineage = reader.lineage("run")
    assert {(s.source_run_id, s.artifact_name) for s in lineage.sources} == {
        ("parent", "weights"),
        ("parent", None),
        ("grandparent", None),
    }
    assert lineage.descendants == ["child"]
    parent = tracker.get_run_id("parent")
    assert tracker.get_run("run").data.tags["mlflow.parentRunId"] == parent


def test_server_answers(mlflow_server: Any) -> None:
    with urllib.request.urlopen(mlflow_server.url + "/version", timeout=PATIENCE) as answer:  # noqa: S310
        assert answer.read()
