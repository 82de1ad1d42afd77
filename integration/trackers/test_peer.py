"""The fsspec tracker and the peer (upstream's release) read each other's files."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.trackers.inline import to_data_uri
from torchx_specs.trackers.lookup import build_tracker

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


def run_in_peer(peer: str, code: str, config: str) -> Any:
    done = subprocess.run([peer, "-c", code, config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1:]
    return json.loads(done.stdout) if done.stdout.strip() else None


def peer_can_read(run: str) -> bool:
    """Return whether the peer can read a run; it lists also runs that it cannot read."""
    return run.isascii() and len(run) < 200


def read_with_ours(config: str) -> Any:
    tracker = build_tracker("fsspec", config)
    return {
        "run_ids": sorted(tracker.run_ids()),
        "children": sorted(tracker.run_ids(parent_run_id="run")),
        "metadata": {
            run: dict(tracker.metadata(run)) for run in tracker.run_ids() if peer_can_read(run)
        },
        "artifacts": {n: [a.path, a.metadata] for n, a in sorted(tracker.artifacts("run").items())},
        "sources": sorted([s.source_run_id, s.artifact_name or ""] for s in tracker.sources("run")),
    }


def test_we_read_the_files_of_the_peer(peer: str, config: str) -> None:
    run_in_peer(peer, WRITE, config)
    assert read_with_ours(config) == run_in_peer(peer, READ, config)
    assert build_tracker("fsspec", config).lineage("parent").descendants == ["run", "child"]


@pytest.mark.parametrize("protocol", ["file", "folders"])
def test_the_peer_reads_our_files(peer: str, config: str, protocol: str) -> None:
    tracker = build_tracker("fsspec", config)
    if protocol == "folders":
        from fsspec.implementations.local import LocalFileSystem

        from torchx_tracker_fsspec import FsspecTracker

        class Folders(LocalFileSystem):
            protocol = ("folders",)

        tracker = FsspecTracker(Folders(), str(Path(config).parent / "root"))
    odd = ["é/ü", "../up", "日本語" * 40, "x" * 900, "\udcff", "a\nb"]
    for run in ("run", *odd):
        tracker.add_metadata(run, loss=0.5, note="x é")
        for number in range(3):
            tracker.add_artifact(run, f"a{number}", f"/{number}", {"n": number})
        tracker.add_source(run, "parent", "weights")
        tracker.add_source(run, "run", run)
        tracker.add_source(run, "other")
    ours, theirs = read_with_ours(config), run_in_peer(peer, READ, config)
    assert theirs["artifacts"] == ours["artifacts"]
    assert theirs["sources"] == ours["sources"]
    # the folder of a run has another name if the id is not a valid name of a folder
    short = [run for run in ours["run_ids"] if run in theirs["run_ids"]]
    assert sorted(short) == sorted(["run", "é/ü", "../up", "a\nb"])
    assert len(theirs["run_ids"]) == len(ours["run_ids"]) == 1 + len(odd)
    assert len(theirs["children"]) == len(ours["children"]) == 1 + len(odd)
    for run in filter(peer_can_read, short):
        assert theirs["metadata"][run] == ours["metadata"][run] == {"loss": 0.5, "note": "x é"}


def test_both_can_write_to_one_run(peer: str, config: str) -> None:
    tracker = build_tracker("fsspec", config)
    tracker.add_metadata("run", before=1)
    tracker.add_artifact("run", "before", "/b")
    tracker.add_source("run", "parent", "vocab")
    run_in_peer(peer, WRITE, config)
    tracker.add_metadata("run", loss=0.25)
    tracker.add_source("run", "parent", "weights")
    ours, theirs = read_with_ours(config), run_in_peer(peer, READ, config)
    assert ours["metadata"]["run"] == {"before": 1, "loss": 0.25, "note": "x é"}
    assert theirs["sources"] == ours["sources"]
    assert theirs["artifacts"] == ours["artifacts"]
    assert theirs["run_ids"] == ours["run_ids"]


def test_the_peer_reads_an_inlined_configuration(peer: str, config: str) -> None:
    inlined = to_data_uri(Path(config).read_text())
    run_in_peer(peer, WRITE, inlined)
    assert read_with_ours(config) == read_with_ours(inlined) == run_in_peer(peer, READ, inlined)
