"""Tests that files written by upstream's releases can be read.

Each ``older/*.json`` contains the files that one release wrote, and names the commands that wrote
them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from torchx.runner.config import apply, find_configs, get_config, get_configs, load_sections
from torchx.schedulers.api import Stream
from torchx.schedulers.local_scheduler import (
    COMBINED_LOG,
    LogIterator,
    create_scheduler,
)
from torchx.schedulers.slurm_scheduler import SlurmScheduler
from torchx.specs import AppDef, AppState, Resource, Role, Workspace
from torchx.tracker.backend.fsspec import create as create_tracker
from torchx.workspace.dir_workspace import DirWorkspaceMixin

OLDER = sorted((Path(__file__).parent / "older").glob("*.json"))


@pytest.fixture(params=OLDER, ids=[path.stem for path in OLDER])
def older(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Write the files of one release to the working directory; return its data, with ``root``."""
    root = tmp_path / "root"
    data: dict[str, Any] = json.loads(request.param.read_text("utf-8"))
    for name, text in data["files"].items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("@ROOT@", str(root)), "utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.delenv("TORCHXCONFIG", raising=False)
    monkeypatch.chdir(root)
    return {**data, "root": root}


def test_data_of_both_releases_exists() -> None:
    assert [path.stem for path in OLDER] == ["0.7.0", "nightly-2026.10.26"]


def test_torchxconfig_is_read(older: dict[str, Any]) -> None:
    root = older["root"]
    assert [Path(path).resolve() for path in find_configs()] == [root / ".torchxconfig"]
    local: dict[str, Any] = {}
    slurm: dict[str, Any] = {"time": "5"}
    apply("local_cwd", local)
    apply("slurm", slurm)
    assert local == {"log_dir": str(root / "logs")}
    assert slurm == {"time": "5", "partition": "gpu"}
    assert get_configs("cli", "run") == {"scheduler": "local_cwd", "component": "utils.echo"}
    assert load_sections("component") == {"utils.echo": {"msg": "from the file"}}
    assert get_config("tracker", "fsspec", "config") == str(root / "tracker.conf")


def run_of(older: dict[str, Any], pattern: str) -> str:
    (folder,) = (older["root"] / "logs/torchx").glob(pattern)
    return folder.name


def test_log_folders_are_read(older: dict[str, Any]) -> None:
    app_id = run_of(older, "torchx_utils_python-*")
    folder = older["root"] / "logs/torchx" / app_id
    scheduler = create_scheduler("torchx")
    log = str(folder / "python/0" / COMBINED_LOG)
    lines = LogIterator(app_id, log, scheduler, should_tail=False)
    assert sorted(line.rstrip("\n") for line in lines) == ["err", "job é"]


def test_our_log_folders_have_the_files_and_keys_of_older_ones(older: dict[str, Any]) -> None:
    role = Role("sh", "", entrypoint="sh", args=["-c", "exit 127"], resource=Resource(1, 0, 1))
    scheduler = create_scheduler("torchx")
    info = scheduler.submit_dryrun(AppDef("sh", [role]), {"log_dir": str(older["root"] / "now")})
    app_id = scheduler.schedule(info)
    scheduler.wait(app_id)
    assert scheduler.describe(app_id).state == AppState.FAILED
    scheduler.close()
    theirs = older["root"] / "logs/torchx" / run_of(older, "sh-*")
    ours = older["root"] / "now/torchx" / app_id

    def files(folder: Path) -> set[str]:
        found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        return {name for name in found if not name.startswith(".torchx/")}

    def keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: keys(item) for key, item in value.items()}
        return [keys(item) for item in value] if isinstance(value, list) else type(value).__name__

    assert files(ours) == files(theirs)
    ended, ends = (json.loads((folder / "SUCCESS").read_text()) for folder in (theirs, ours))
    # Our own keys are an addition: older readers ignore them.
    (ours_replica,), (theirs_replica,) = ends["roles"]["sh"], ended["roles"]["sh"]
    assert keys(theirs_replica).items() <= keys(ours_replica).items()
    assert {key: type(ends[key]) for key in ended} == {key: type(ended[key]) for key in ended}
    assert ends["final_state"] == ended["final_state"] == "FAILED"
    assert ends["roles"]["sh"][0]["exitcode"] == ended["roles"]["sh"][0]["exitcode"] == 127


def test_tracker_data_is_read_and_extended(older: dict[str, Any]) -> None:
    tracker = create_tracker(str(older["root"] / "tracker.conf"))
    run = f"local_cwd://torchx/{run_of(older, 'torchx_utils_python-*')}"
    assert list(tracker.run_ids()) == [run]
    assert dict(tracker.metadata(run)) == {"lr": 0.5, "name": "é"}
    artifact = tracker.artifacts(run)["model"]
    assert (artifact.name, artifact.path, artifact.metadata) == ("model", "/m.pt", {"epoch": 3})
    (source,) = tracker.sources(run)
    assert (source.source_run_id, source.artifact_name) == ("local_cwd://older/parent", "dataset")
    assert list(tracker.run_ids(parent_run_id="local_cwd://older/parent")) == [run]
    tracker.add_metadata(run, lr=0.1)
    assert dict(tracker.metadata(run)) == {"lr": 0.1, "name": "é"}


def test_torchxignore_excludes_the_same_files(older: dict[str, Any]) -> None:
    tree, copy = older["root"] / "tree", older["root"] / "copy"
    for name in older["ignored"]["tree"]:
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tree / ".torchxignore").write_text(older["ignored"]["rules"])
    role = Role("r", "", workspace=Workspace({str(tree): ""}))
    DirWorkspaceMixin().caching_build_workspace_and_update_role(role, {"job_dir": str(copy)}, {})
    copied = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
    # The only difference to older releases: a "!" rule can include a file of an excluded folder.
    assert copied == {*older["ignored"]["copied"], "keep/me.txt"}


def test_slurm_job_folders_are_read(older: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    root = older["root"]
    # These fake Slurm commands print nothing, as if Slurm had forgotten the job.
    for name in ("squeue", "sacct", "scontrol"):
        double = root / "bin" / name
        double.parent.mkdir(exist_ok=True)
        double.write_text("#!/bin/sh\n")
        double.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    job = root / "job-dir"
    job.mkdir()
    text = older["slurm_job_dirs"].replace("@ROOT@", str(root))
    (root / ".torchxslurmjobdirs").write_text(text)
    # The batch script of the older release passed these file names to srun.
    (job / "slurm-4242-echo-0.out").write_text("said\n")
    (job / "slurm-4242-echo-0.err").write_text("complained\n")
    scheduler = SlurmScheduler("torchx")
    assert list(scheduler.log_iter("4242", "echo", 0)) == ["said\n", "complained\n"]
    assert list(scheduler.log_iter("4242", "echo", 0, streams=Stream.STDOUT)) == ["said\n"]
