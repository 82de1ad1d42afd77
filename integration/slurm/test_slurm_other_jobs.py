"""Jobs of other tools in the queue, and a cluster without ``sacct``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_jobs import Cluster, app, every_release, wait_for, wait_until_forgotten

from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppState

HETEROGENEOUS = """#!/bin/bash
#SBATCH --job-name=het --nodes=1 --mem=10
#SBATCH hetjob
#SBATCH --nodes=1 --mem=10
sleep 86400
"""


def sbatch(*arguments: str) -> str:
    command = ["sbatch", "--parsable", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def others(cluster: Cluster, work: Path) -> Iterator[tuple[str, str]]:
    """Yield the ids of an array of three tasks, two of which run, and of a heterogeneous job."""
    script = work / "het.sh"
    script.write_text(HETEROGENEOUS)
    array = sbatch("--array=1-3%2", "--job-name=array", "--mem=10", "--wrap", "sleep 86400")
    het = sbatch(str(script))
    yield array, het
    subprocess.run(["scancel", array, het], check=True)


@every_release
@pytest.mark.usefixtures("long_memory")
def test_arrays_and_heterogeneous_jobs_of_other_tools(
    scheduler: SlurmScheduler, others: tuple[str, str]
) -> None:
    array, het = others
    app_id = scheduler.submit(app("echo up", num_replicas=2), {})
    for each in others:
        wait_for(scheduler, each, AppState.RUNNING)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main", 1)) == ["up\n"]
    listed = {found.app_id: (found.name, found.state) for found in scheduler.list()}
    assert listed[app_id] == ("app", AppState.SUCCEEDED)
    assert listed[array] == ("array", AppState.RUNNING)
    assert listed[het] == ("het", AppState.RUNNING)
    # Neither tasks of the array nor components are apps.
    assert {app_id for app_id, (name, _) in listed.items() if name in ("array", "het")} == {*others}
    for each in others:
        scheduler.cancel(each)
        assert wait_for(scheduler, each).state == AppState.CANCELLED


def test_cluster_without_sacct(
    scheduler: SlurmScheduler, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*") if os.path.isdir(folder) else ():
            if path.name != "sacct" and not os.path.lexists(programs / path.name):
                (programs / path.name).symlink_to(path)
    monkeypatch.setenv("PATH", str(programs))
    other = create_scheduler("without sacct")
    app_ids = {code: other.submit(app(f"exit {code}"), {}) for code in (0, 3)}
    for app_id in app_ids.values():
        wait_until_forgotten(cluster, app_id)
    states = {found.app_id: found.state for found in other.list()}
    for code, state in ((0, AppState.SUCCEEDED), (3, AppState.FAILED)):
        found = other.describe(app_ids[code])
        assert found is not None
        assert found.state == states[app_ids[code]] == state
    assert other.describe("4000000") is None
