"""Tests of the MLflow tracker on a real tracking server, with SQLite."""

from __future__ import annotations

import dataclasses
import multiprocessing
import random
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.trackers.api import (
    TrackerArtifact,
    TrackerBackendError,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker.trackers import build_tracker
from torchx_tracker_mlflow import MLflowTracker

ODD = ["it's", 'a"b', 'it\'s "both"', "../up", "é/日本 😀", "x" * 400, "\udcff", "a\nb", "a`;b\\"]


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


@pytest.mark.parametrize("odd", ODD)
def test_unusual_ids_and_names_are_kept(odd: str, tracker: MLflowTracker, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    tracker.add_metadata(odd, **{odd: odd})
    tracker.add_artifact(odd, odd, str(file), {odd: odd})
    tracker.add_source(odd, "parent" + odd, odd)
    assert tracker.metadata(odd) == {odd: odd}
    (artifact,) = tracker.artifacts(odd).values()
    assert (artifact.name, artifact.metadata) == (odd, {odd: odd, "mlflow.file_size": 0})
    assert list(tracker.sources(odd)) == [TrackerSource("parent" + odd, odd)]
    assert list(tracker.run_ids()) == [odd]
    assert list(tracker.run_ids(parent_run_id="parent" + odd)) == [odd]


def _write(config: str, rank: int, barrier: Any) -> None:
    tracker = build_tracker("mlflow", config)
    barrier.wait()
    for turn in range(5):
        tracker.add_metadata("run", **{f"{rank}-{turn}": turn})
    tracker.add_source("run", "parent", str(rank))


def test_concurrent_ranks_write_to_one_run(tracker: MLflowTracker, config: str) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(8)
    ranks = [context.Process(target=_write, args=(config, rank, barrier)) for rank in range(8)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    expected = {f"{rank}-{turn}": str(turn) for rank in range(8) for turn in range(5)}
    assert tracker.metadata("run") == expected
    assert {s.artifact_name for s in tracker.sources("run")} == {str(rank) for rank in range(8)}
    assert list(tracker.run_ids()) == ["run"]


def test_lineage_of_a_random_graph_matches_the_fsspec_tracker(
    tracker: MLflowTracker, tmp_path: Path
) -> None:
    disk = build_tracker("fsspec", f"protocol=file;root_path={tmp_path}")
    generator = random.Random(5)  # noqa: S311 - no secret
    for _ in range(12):
        link = (
            f"r{generator.randrange(6)}",
            f"r{generator.randrange(6)}",
            generator.choice([None, "a"]),
        )
        disk.add_source(*link)
        tracker.add_source(*link)
    for number in range(6):
        ours, theirs = tracker.lineage(f"r{number}"), disk.lineage(f"r{number}")
        assert set(ours.descendants) == set(theirs.descendants)
        assert set(ours.links) == set(theirs.links)


def test_refused_request_is_an_error_on_one_line(tracker: MLflowTracker) -> None:
    tracker.log_params_flat("run", {"lr": 0.1})
    with pytest.raises((TrackerValueError, TrackerBackendError), match="'run'") as raised:
        tracker.log_params_flat("run", {"lr": 0.2})
    assert "\n" not in str(raised.value)


def test_configuration_may_be_a_folder_as_in_older_releases(
    mlflow_server: Any, tmp_path: Path
) -> None:
    text = f"[tracker:mlflow]\ntracking_uri={mlflow_server.url}\nexperiment_name=by-folder\n"
    (tmp_path / ".torchxconfig").write_text(text)
    tracker = build_tracker("torchx.tracker.mlflow:create_tracker", str(tmp_path))
    tracker.add_metadata("run", a=1)
    assert tracker.metadata("run") == {"a": "1"}


def test_server_answers(mlflow_server: Any) -> None:
    with urllib.request.urlopen(mlflow_server.url + "/version", timeout=10) as answer:  # noqa: S310
        assert answer.read()
