"""Tests of the tracker with MLflow's file store; integration/trackers has a real server."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import json
import multiprocessing
import os
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.trackers.api import (
    TrackerArtifact,
    TrackerBackendError,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker_mlflow import MLflowTracker, local_stores


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MLflowTracker:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.delenv("TORCHX_TRACKING_EXPERIMENT_NAME", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    return MLflowTracker("experiment", f"file://{tmp_path}/runs")


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no such user")])
def test_experiment_of_a_user_without_a_name(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getuser() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", getuser)
    expected = f"default-experiment/{os.getuid()}/"
    assert MLflowTracker.default_experiment_name().startswith(expected)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt"
    path.write_text("weights")
    return path


def test_default_directory_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "my home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    tracker = MLflowTracker(experiment_name="e")
    assert list(tmp_path.iterdir()) == []  # the constructor creates no files
    tracker.add_metadata("run", key="value")
    assert dict(tracker.metadata("run")) == {"key": "value"}
    folder = tmp_path / "my home" / "mlruns"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.rglob("meta.yaml"))
    assert not (tmp_path / "tmp").exists()


def test_file_store_of_an_earlier_version_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    run_id, meta = "0123456789abcdef0123456789abcdef", {"lifecycle_stage": "active"}
    experiment = tmp_path / "mlruns" / "123456789012345678"
    (experiment / run_id / "tags").mkdir(parents=True)
    for name in ("params", "metrics", "artifacts"):
        (experiment / run_id / name).mkdir()
    times = {"start_time": 1, "end_time": None, "status": 1, "source_type": 4}
    write_yaml(
        experiment / "meta.yaml",
        {"experiment_id": experiment.name, "name": "e", "artifact_location": str(experiment)}
        | meta,
    )
    write_yaml(
        experiment / run_id / "meta.yaml",
        {"run_id": run_id, "run_uuid": run_id, "run_name": "run", "user_id": "me"}
        | {"experiment_id": experiment.name, "artifact_uri": f"{experiment}/{run_id}/artifacts"}
        | {"source_name": "", "source_version": "", "entry_point_name": "", "tags": []}
        | times
        | meta,
    )
    (experiment / run_id / "tags" / "mlflow.runName").write_text("run")
    (experiment / run_id / "tags" / "key").write_text("value")
    for uri in (f"file://{tmp_path}/mlruns", str(tmp_path / "mlruns")):
        tracker = MLflowTracker("e", uri)
        assert list(tracker.run_ids()) == ["run"]
        assert tracker.metadata("run")["key"] == "value"
    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ


def write_yaml(path: Path, data: dict[str, object]) -> None:
    path.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in data.items()))


def test_file_store_that_the_user_forbids_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "false")
    tracker = MLflowTracker("e", f"file://{tmp_path}/mlruns")
    with contextlib.suppress(TrackerValueError):  # raised by MLflow 3.13 and later
        tracker.run_ids()
    assert os.environ["MLFLOW_ALLOW_FILE_STORE"] == "false"


def test_database_without_its_library_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_stores, "find_spec", lambda name: None)
    tracker = MLflowTracker("e", "sqlite:////dev/null/mlflow.db")
    with pytest.raises((TrackerValueError, TrackerBackendError), match=r"run: pip install mlflow$"):
        list(tracker.run_ids())


def test_metadata_become_tags(tracker: MLflowTracker) -> None:
    tracker.add_metadata("run/1", a=1, b="x", c=[1, {"d": None}], e=True)
    tracker.add_metadata("run/1", a=2)
    assert tracker.metadata("run/1") == {"a": "2", "b": "x", "c": '[1, {"d": null}]', "e": "True"}
    assert tracker.get_run("run/1").data.tags["a"] == "2"


def test_many_tags_are_sent_in_batches(tracker: MLflowTracker) -> None:
    pairs = {f"k{number}": str(number) for number in range(250)}
    tracker.add_metadata("run", **pairs)
    assert tracker.metadata("run") == pairs


def test_file_is_uploaded(tracker: MLflowTracker, file: Path) -> None:
    tracker.add_artifact("run", "models/best", str(file), {"epoch": 3})
    uri = tracker.get_run("run").info.artifact_uri
    assert tracker.artifacts("run") == {
        "models/best": TrackerArtifact(
            "models/best", f"{uri}/models/best/model.pt", {"epoch": 3, "mlflow.file_size": 7}
        )
    }
    assert (Path(uri.removeprefix("file://")) / "models/best/model.pt").read_text() == "weights"
    tags = tracker.get_run("run").data.tags
    assert tags["torchx.artifact.metadata.models/best.epoch"] == "3"


def test_directory_is_uploaded(tracker: MLflowTracker, file: Path) -> None:
    folder = file.parent / "checkpoint"
    (folder / "shards").mkdir(parents=True)
    (folder / "shards" / "0").write_text("0")
    tracker.add_artifact("run", "checkpoint", str(folder))
    uri = tracker.get_run("run").info.artifact_uri
    expected = TrackerArtifact("checkpoint", f"{uri}/checkpoint", None)
    assert tracker.artifacts("run") == {"checkpoint": expected}
    assert (Path(uri.removeprefix("file://")) / "checkpoint/shards/0").exists()


def test_remote_artifact_is_recorded_by_its_path(tracker: MLflowTracker) -> None:
    tracker.add_artifact("run", "data", "s3://bucket/data", {"rows": 5})
    expected = TrackerArtifact("data", "s3://bucket/data", {"rows": 5})
    assert tracker.artifacts("run") == {"data": expected}


def test_artifacts_of_older_versions_are_read(tracker: MLflowTracker, file: Path) -> None:
    run = tracker.get_run_id("run")
    tracker._client.log_artifact(run, str(file), "deep/model")
    tracker._client.set_tag(run, "torchx.artifact.metadata.deep/model.k", "1")
    uri = tracker.get_run("run").info.artifact_uri
    assert tracker.artifacts("run") == {
        "deep/model": TrackerArtifact(
            "deep/model", f"{uri}/deep/model/model.pt", {"k": "1", "mlflow.file_size": 7}
        )
    }
    assert tracker.metadata("run") == {}


def test_parent_of_a_nested_run_is_a_source(tracker: MLflowTracker) -> None:
    tracker.add_metadata("parent", a=1)
    tags = {"mlflow.parentRunId": tracker.get_run_id("parent")}
    tracker._client.create_run(tracker.experiment_id, run_name="nested", tags=tags)
    assert list(tracker.run_ids(parent_run_id="parent")) == ["nested"]
    assert list(tracker.sources("nested")) == [TrackerSource("parent", None)]


def test_reading_creates_no_run(tracker: MLflowTracker) -> None:
    assert tracker.metadata("nope") == {}
    assert tracker.artifacts("nope") == {}
    assert list(tracker.sources("nope")) == []
    assert list(tracker.run_ids()) == []
    assert tracker.lineage("nope").descendants == []
    assert tracker._find_experiment() is None


@dataclasses.dataclass
class Optimizer:
    name: str = "sgd"
    betas: tuple[float, float] = (0.9, 0.99)


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    parts: list[Any] = dataclasses.field(default_factory=lambda: [Optimizer(), Optimizer("adam")])
    extra: dict[str, Any] = dataclasses.field(default_factory=lambda: {"o": Optimizer(), "n": None})


def test_parameters_are_flattened(tracker: MLflowTracker) -> None:
    tracker.log_params_flat("run", Config(), key="c")
    assert tracker.get_run("run").data.params == {
        "c.lr": "0.1",
        "c.parts._0.name": "sgd",
        "c.parts._0.betas": "(0.9, 0.99)",
        "c.parts._1.name": "adam",
        "c.parts._1.betas": "(0.9, 0.99)",
        "c.extra.o.name": "sgd",
        "c.extra.o.betas": "(0.9, 0.99)",
        "c.extra.n": "None",
    }
    tracker.log_params_flat("flat", {"a": 1, "b": {"c": [1, {"d": 2}]}})
    assert tracker.get_run("flat").data.params == {"a": "1", "b.c": "[1, {'d': 2}]"}
    with pytest.raises(TrackerValueError, match="needs a key"):
        tracker.log_params_flat("run", 5)
    with pytest.raises((TrackerValueError, TrackerBackendError), match="parameters of run 'run'"):
        tracker.log_params_flat("run", Config(lr=0.2), key="c")


def test_close_ends_the_runs(tracker: MLflowTracker) -> None:
    tracker.add_metadata("run", a=1)
    assert tracker.get_run("run").info.status == "RUNNING"
    tracker.close()
    assert tracker._find("run")[0].info.status == "FINISHED"


def test_empty_names_are_an_error(tracker: MLflowTracker) -> None:
    for call in (
        lambda: tracker.add_metadata("", a=1),
        lambda: tracker.add_source("run", ""),
        lambda: tracker.add_artifact("run", "", "/p"),
        lambda: tracker.metadata(""),
    ):
        with pytest.raises(TrackerValueError, match="empty"):
            call()


def test_unknown_filter_is_an_error(tracker: MLflowTracker) -> None:
    with pytest.raises(TrackerValueError, match="parent_run_id"):
        tracker.run_ids(user="me")


def test_deleted_experiment_is_an_error(tracker: MLflowTracker) -> None:
    experiment_id = tracker.experiment_id
    tracker._client.delete_experiment(experiment_id)
    # A server finds a deleted experiment by its name, but not every version of the file store does.
    tracker._experiment = tracker._client.get_experiment(experiment_id)
    with pytest.raises(TrackerBackendError, match="'experiment' is deleted"):
        tracker.add_metadata("run", a=1)


def test_unreachable_server_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = MLflowTracker("e", "http://user:secret@127.0.0.1:9")
    with pytest.raises(TrackerBackendError, match="cannot find experiment 'e'") as raised:
        tracker.add_metadata("run", a=1)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def _write(uri: str, rank: int, barrier: Any) -> None:
    tracker = MLflowTracker("experiment", uri)
    barrier.wait()
    tracker.add_metadata("run", **{f"rank{rank}": rank})


def test_concurrent_ranks_write_to_one_run(tracker: MLflowTracker) -> None:
    tracker.experiment_id  # noqa: B018 - the file store cannot create it concurrently
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    ranks = [
        context.Process(target=_write, args=(tracker._uri, rank, barrier)) for rank in range(4)
    ]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0
    assert tracker.metadata("run") == {f"rank{rank}": str(rank) for rank in range(4)}
    assert list(tracker.run_ids()) == ["run"]


def test_concurrent_threads_create_one_run(tracker: MLflowTracker) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: tracker.add_metadata("run", **{f"k{n}": str(n)}), range(16)))
    assert tracker.metadata("run") == {f"k{number}": str(number) for number in range(16)}
    assert len(tracker._find("run")) == 1


def test_writes_go_to_the_oldest_run_and_reads_use_all(tracker: MLflowTracker) -> None:
    experiment = tracker.experiment_id
    made = [
        tracker._client.create_run(experiment, start_time=time, run_name="run").info.run_id
        for time in (3000, 1000, 2000)
    ]
    for number, mlflow_id in enumerate(made):
        tracker._client.set_tag(mlflow_id, f"k{number}", "x")
    tracker.add_metadata("run", new="x")
    assert tracker.get_run_id("run") == made[1]
    assert tracker.metadata("run") == {"k0": "x", "k1": "x", "k2": "x", "new": "x"}
    assert list(tracker.run_ids()) == ["run"]


def test_other_ranks_wait_for_rank_0(
    tracker: MLflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = MLflowTracker("experiment", tracker._uri)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            monkeypatch.setenv("RANK", "0")
            other.add_metadata("run", first=1)

    monkeypatch.setenv("RANK", "1")
    waiting = MLflowTracker("experiment", tracker._uri, sleep=pause)
    waiting.add_metadata("run", second=2)
    assert len(pauses) == 3
    assert waiting.get_run_id("run") == other.get_run_id("run")


def test_metadata_and_metrics_of_many_runs_need_few_requests(
    tracker: MLflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"local_cwd://torchx/train-{i}" for i in range(150)]
    for run_id in ids[:3]:
        tracker.add_metadata(run_id, seed=1)
    tracker.add_metadata('a"b', key="odd")
    for step, value in enumerate((2.0, 0.5)):
        tracker._client.log_metric(tracker.get_run_id(ids[1]), "loss", value, step=step)
    searches: list[str] = []
    search = tracker._search
    monkeypatch.setattr(tracker, "_search", lambda c: (searches.append(c), search(c))[1])
    found = tracker.metadata_of_runs([*ids, 'a"b', "missing"])
    assert found == {
        ids[0]: {"seed": "1"},
        ids[1]: {"seed": "1", "loss": 0.5},
        ids[2]: {"seed": "1"},
        'a"b': {"key": "odd"},
    }
    assert len(searches) == 2
