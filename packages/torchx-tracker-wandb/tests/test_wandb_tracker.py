"""Tests of the tracker with W&B's own library, mostly offline, and with a double of its API."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb

from manual_clock import ManualClock
from patience import wait_for
from torchx_specs.trackers.api import (
    TrackerArtifact,
    TrackerBackendError,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker_wandb import WandbTracker

RUN = "slurm://torchx/42"


@pytest.fixture
def tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbTracker]:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    made = WandbTracker(project="p", mode="offline", dir=str(tmp_path))
    yield made
    made.close()


def wandb_log(folder: Path, last: str) -> bytes:
    """Return W&B's own log of the only offline run; wait until W&B has written the text ``last``.

    W&B's service is another process, which may write after ``finish`` has returned.
    """
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    wait_for(lambda: last.encode() in path.read_bytes(), path.read_bytes)
    return path.read_bytes()


def write_in_another_process(folder: Path, text: str) -> None:
    code = (
        "from torchx_tracker_wandb import WandbTracker\n"
        f"t = WandbTracker(project='p', mode='offline', dir={str(folder)!r})\n{text}\nt.close()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_records_are_in_the_log_that_wandb_syncs(tracker: WandbTracker, tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_text("weights")
    tracker.add_metadata(RUN, learning_rate=0.125)
    tracker.add_artifact(RUN, "best model", str(model))
    tracker.add_artifact(RUN, "data", "acme://bucket/data")
    tracker.add_source(RUN, "parent-run")
    tracker.close()
    log = wandb_log(tmp_path, "parent-run")
    for text in (RUN, "learning_rate", "best-model-", "acme://bucket/data"):
        assert text.encode() in log, text
    assert model.as_uri().encode() in log
    assert b"weights" not in log


def test_run_id_becomes_a_digest_and_a_group(tracker: WandbTracker) -> None:
    tracker.add_metadata(RUN, k=1)
    (run,) = tracker._runs.values()
    assert not set(run.id) & set(":;,#?/'")
    assert (run.name, run.group, run.project) == (RUN, RUN, "p")
    assert json.loads(run.config["torchx_run_id"]) == RUN
    assert run.config["k"] == 1


def test_own_run_of_the_job_is_left_alone(tracker: WandbTracker, tmp_path: Path) -> None:
    own = wandb.init(project="mine", mode="offline", dir=str(tmp_path))
    try:
        tracker.add_metadata(RUN, k=1)
        tracker.close()
        assert wandb.run is own
        assert "k" not in own.config
        own.log({"loss": 1})
    finally:
        own.finish()


def test_config_of_wandb_has_only_values_that_it_can_represent(tracker: WandbTracker) -> None:
    given: dict[str, Any] = {"nan": float("nan"), "odd": "\udcff", "a b": 1, "torchx_x": 1, "ok": 2}
    tracker.add_metadata(RUN, **given)
    (run,) = tracker._runs.values()
    shown = {key for key in run.config if not key.startswith(("torchx_r", "_wandb"))}
    assert shown == {"ok"}
    found = dict(tracker.metadata(RUN))
    assert str(found.pop("nan")) == "nan"
    assert found == {"odd": "\udcff", "a b": 1, "torchx_x": 1, "ok": 2}


def test_missing_file_is_recorded_by_its_path(tracker: WandbTracker) -> None:
    tracker.add_artifact(RUN, "model", "/no/such/file", {"epoch": 3})
    expected = TrackerArtifact("model", "/no/such/file", {"epoch": 3})
    assert tracker.artifacts(RUN) == {"model": expected}


def test_processes_write_separate_runs_and_reads_use_all(
    tracker: WandbTracker, tmp_path: Path
) -> None:
    tracker.add_metadata(RUN, first=1, both="old")
    write_in_another_process(tmp_path, f"t.add_metadata({RUN!r}, second=2, both='new')")
    assert tracker.metadata(RUN) == {"first": 1, "second": 2, "both": "new"}
    assert tracker.run_ids() == [RUN]
    assert len(list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))) == 2
    tracker.add_metadata(RUN, both="newest")
    assert tracker.metadata(RUN)["both"] == "newest"


def test_forked_child_starts_its_own_run(tmp_path: Path) -> None:
    write_in_another_process(
        tmp_path,
        f"""
import os
t.add_metadata({RUN!r}, parent=1)
child = os.fork()
t.add_metadata({RUN!r}, **{{"after" if child else "child": 1}})
if child:
    assert os.waitpid(child, 0)[1] == 0
""",
    )
    tracker = WandbTracker(mode="offline", dir=str(tmp_path))
    assert tracker.metadata(RUN) == {"parent": 1, "child": 1, "after": 1}
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2


def test_missing_api_key_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # this folder has no .netrc with an API key
    code = (
        "from torchx_tracker_wandb import WandbTracker\n"
        f"WandbTracker(project='p', mode='online', dir={str(tmp_path)!r}).add_metadata('r', k=1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    error = "the wandb tracker cannot start run 'r': "
    line = [line for line in done.stderr.splitlines() if error in line][-1]
    # This part of the message comes from W&B, and differs between W&B's versions.
    assert re.search(r"No API key configured|api_key not configured", line)


def test_failed_start_is_not_repeated_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    tracker = WandbTracker(project="p", mode="offline", dir=str(tmp_path), clock=clock)
    calls: list[object] = []

    def init_that_fails(**arguments: object) -> None:
        calls.append(arguments)
        raise wandb.errors.CommError("connection refused")

    monkeypatch.setattr(wandb, "init", init_that_fails)
    for _ in range(3):
        with pytest.raises(TrackerBackendError, match="cannot start run 'r': connection refused"):
            tracker.add_metadata("r", k=1)
    assert len(calls) == 1
    assert tracker.metadata("r") == {}
    monkeypatch.undo()
    clock.now += 600
    tracker.add_metadata("r", k=1)
    assert tracker.metadata("r") == {"k": 1}
    tracker.close()


def test_incomplete_line_of_a_killed_process_is_skipped(
    tracker: WandbTracker, tmp_path: Path
) -> None:
    tracker.add_metadata(RUN, k=1)
    (journal,) = tmp_path.glob("wandb/offline-run-*/torchx-tracker.jsonl")
    with journal.open("ab") as file:
        file.write(b'[{"kind": "metadata", "key": "x"}, 5]\n7\n\xff\n[{"kind": "met')
    assert tracker.metadata(RUN) == {"k": 1}


def test_reading_warns_once_that_offline_runs_are_local(
    tracker: WandbTracker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert tracker.run_ids() == []
        assert tracker.metadata("nobody") == {}
    (message,) = caplog.messages
    assert message.startswith(f"W&B is offline: only records below '{tmp_path}/wandb' are shown")


def test_reading_creates_no_files(tracker: WandbTracker, tmp_path: Path) -> None:
    assert tracker.lineage("nobody").links == []
    assert list(tmp_path.iterdir()) == []


def test_disabled_tracker_keeps_records_in_memory_only(tmp_path: Path) -> None:
    tracker = WandbTracker(mode="disabled", dir=str(tmp_path))
    value = [1]
    tracker.add_metadata(RUN, k=value)
    value.append(2)
    tracker.add_artifact(RUN, "a", "/a")
    tracker.add_source("child", RUN)
    assert tracker.metadata(RUN) == {"k": [1]}
    assert list(tracker.sources("child")) == [TrackerSource(RUN, None)]
    assert tracker.run_ids(parent_run_id=RUN) == ["child"]
    assert not list(tmp_path.rglob("*"))


def test_invalid_arguments_are_errors(tracker: WandbTracker, tmp_path: Path) -> None:
    with pytest.raises(TrackerValueError, match="'x' of run"):
        tracker.add_metadata(RUN, good=1, x=object())
    with pytest.raises(TrackerValueError, match="the run id is empty"):
        tracker.add_metadata("", k=1)
    with pytest.raises(TrackerValueError, match="the run id is empty"):
        tracker.metadata("")
    with pytest.raises(TrackerValueError, match="source of run"):
        tracker.add_source(RUN, "")
    with pytest.raises(TrackerValueError, match="valid filters: parent_run_id"):
        tracker.run_ids(state="x")
    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tracker = WandbTracker(mode="offline", dir=str(tmp_path / "file" / "below"))
    with pytest.raises(TrackerBackendError, match=r"cannot start run 'r'.*file/below"):
        tracker.add_metadata("r", k=1)


class DoubleOfWandbApi:
    """A double of ``wandb.Api`` without a server; it has the documented part that is used."""

    default_entity = "me"
    configs: list[dict[str, object]] = []
    queries: list[tuple[str, object, str]] = []

    def runs(self, path: str, filters: Any, order: str) -> Iterator[SimpleNamespace]:
        self.queries.append((path, filters, order))
        if not self.configs:
            raise ValueError(f"Could not find project {path}")
        return iter([SimpleNamespace(config=config) for config in self.configs])


def test_online_reads_decode_the_configs_of_a_double(
    tracker: WandbTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker.add_metadata(RUN, k="old", kept=1.5)
    tracker.add_metadata(RUN, k="new")
    tracker.add_source(RUN, "parent", "model")
    tracker.add_artifact(RUN, "model", "s3://b/k")
    (run,) = tracker._runs.values()
    monkeypatch.setattr(wandb, "Api", DoubleOfWandbApi)
    online = WandbTracker(project="p", entity="team", mode="online")
    assert online.metadata(RUN) == {}
    DoubleOfWandbApi.configs = [{"lr": "no TorchX run"}, dict(run.config)]
    monkeypatch.setattr(DoubleOfWandbApi, "queries", [])
    assert online.metadata(RUN) == {"k": "new", "kept": 1.5}
    digest = run.config["torchx_run_digest"]
    expected = ("team/p", {"config.torchx_run_digest": digest}, "-created_at")
    assert DoubleOfWandbApi.queries == [expected]
    assert online.run_ids() == online.run_ids(parent_run_id="parent") == [RUN]
    assert list(online.sources(RUN)) == [TrackerSource("parent", "model")]
    assert set(online.artifacts(RUN)) == {"model"}
    assert [s.source_run_id for s in online.lineage(RUN).sources] == ["parent"]
    DoubleOfWandbApi.configs = []
