"""Tests of the layout on disk: a release of upstream's TorchX (the peer) and we read each other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.trackers.inline import to_data_uri
from torchx_tracker.trackers import build_tracker

WRITE = """
import sys
from torchx.tracker.backend.fsspec import create
tracker = create(sys.argv[1])
tracker.add_metadata("parent", step=1)
tracker.add_metadata("run", loss=0.5, note="x \\u00e9")
tracker.add_artifact("run", "model", "/m", {"epoch": 3})
tracker.add_source("run", "parent", "weights")
tracker.add_source("run", "other")
tracker.add_source("child", "run")
"""
READ = """
import json, sys
from torchx.tracker.backend.fsspec import create
tracker = create(sys.argv[1])
print(json.dumps({
    "run_ids": sorted(tracker.run_ids()),
    "children": sorted(tracker.run_ids(parent_run_id="run")),
    "metadata": {run: tracker.metadata(run) for run in tracker.run_ids() if run.isascii()},
    "artifacts": {n: [a.path, a.metadata] for n, a in sorted(tracker.artifacts("run").items())},
    "sources": sorted([s.source_run_id, s.artifact_name or ""] for s in tracker.sources("run")),
}))
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    root = tmp_path / "root"
    root.mkdir()
    file = tmp_path / "tracker.conf"
    file.write_text(f"protocol=file\nroot_path={root}\n")
    return str(file)


def run_peer(peer: str, code: str, config: str) -> Any:
    done = subprocess.run([peer, "-c", code, config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout) if done.stdout.strip() else None


def is_readable_by_peer(run: str) -> bool:
    """Return True if the peer can read a run with this id; the peer also lists other runs."""
    return run.isascii() and len(run) < 200


def read_ours(config: str) -> Any:
    tracker = build_tracker("fsspec", config)
    return {
        "run_ids": sorted(tracker.run_ids()),
        "children": sorted(tracker.run_ids(parent_run_id="run")),
        "metadata": {
            run: dict(tracker.metadata(run))
            for run in tracker.run_ids()
            if is_readable_by_peer(run)
        },
        "artifacts": {n: [a.path, a.metadata] for n, a in sorted(tracker.artifacts("run").items())},
        "sources": sorted([s.source_run_id, s.artifact_name or ""] for s in tracker.sources("run")),
    }


def test_we_read_files_of_the_peer(peer: str, config: str) -> None:
    run_peer(peer, WRITE, config)
    assert read_ours(config) == run_peer(peer, READ, config)
    assert build_tracker("fsspec", config).lineage("parent").descendants == ["run", "child"]


@pytest.mark.parametrize("protocol", ["file", "folders"])
def test_peer_reads_our_files(peer: str, config: str, protocol: str) -> None:
    tracker = build_tracker("fsspec", config)
    if protocol == "folders":
        from fsspec.implementations.local import LocalFileSystem

        from torchx_tracker_fsspec import FsspecTracker

        class Folders(LocalFileSystem):
            protocol = ("folders",)

        tracker = FsspecTracker(Folders(), str(Path(config).parent / "root"))
    unusual = ["é/ü", "../up", "日本語" * 40, "x" * 900, "\udcff", "a\nb"]
    for run in ("run", *unusual):
        tracker.add_metadata(run, loss=0.5, note="x é")
        for number in range(3):
            tracker.add_artifact(run, f"a{number}", f"/{number}", {"n": number})
        tracker.add_source(run, "parent", "weights")
        tracker.add_source(run, "run", run)
        tracker.add_source(run, "other")
    ours, theirs = read_ours(config), run_peer(peer, READ, config)
    assert theirs["artifacts"] == ours["artifacts"]
    assert theirs["sources"] == ours["sources"]
    # If an id is too long or not Unicode, the peer lists the run's alias instead of the id.
    shared = [run for run in ours["run_ids"] if run in theirs["run_ids"]]
    assert sorted(shared) == sorted(["run", "é/ü", "../up", "a\nb"])
    assert len(theirs["run_ids"]) == len(ours["run_ids"]) == 1 + len(unusual)
    assert len(theirs["children"]) == len(ours["children"]) == 1 + len(unusual)
    for run in filter(is_readable_by_peer, shared):
        assert theirs["metadata"][run] == ours["metadata"][run] == {"loss": 0.5, "note": "x é"}


def test_peer_and_we_write_to_one_run(peer: str, config: str) -> None:
    tracker = build_tracker("fsspec", config)
    tracker.add_metadata("run", before=1)
    tracker.add_artifact("run", "before", "/b")
    tracker.add_source("run", "parent", "vocab")
    run_peer(peer, WRITE, config)
    tracker.add_metadata("run", loss=0.25)
    tracker.add_source("run", "parent", "weights")
    ours, theirs = read_ours(config), run_peer(peer, READ, config)
    assert ours["metadata"]["run"] == {"before": 1, "loss": 0.25, "note": "x é"}
    assert theirs["sources"] == ours["sources"]
    assert theirs["artifacts"] == ours["artifacts"]
    assert theirs["run_ids"] == ours["run_ids"]


def test_peer_reads_an_inlined_configuration(peer: str, config: str) -> None:
    inlined = to_data_uri(Path(config).read_text())
    run_peer(peer, WRITE, inlined)
    assert read_ours(config) == read_ours(inlined) == run_peer(peer, READ, inlined)
