"""Tests of jobs that report to trackers, and of the commands that show the reports."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import docker_engine
import slurm

Torchx = Callable[..., "CompletedProcess[str]"]

JOB = Path(__file__).with_name("job.py")


def handle_in(run: CompletedProcess[str], scheduler: str = "local_cwd") -> str:
    output = run.stdout + run.stderr
    assert run.returncode == 0, output
    handles = set(re.findall(rf"{scheduler}://[^\s/]*/[\w-]+", output))
    assert len(handles) == 1, output
    return handles.pop()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "experiments"
    path.mkdir()
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    path = tmp_path / "out"
    path.mkdir()
    return path


@pytest.fixture
def configured(torchx: Torchx, tmp_path: Path, root: Path) -> Torchx:
    """Configure a tracker on a local disk, and return the function that runs ``torchx``."""
    (tmp_path / "tracker.conf").write_text(f"protocol=file\nroot_path={root}\n")
    (tmp_path / "work" / ".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nconfig={tmp_path}/tracker.conf\n"
    )
    return torchx


def table(done: CompletedProcess[str]) -> list[list[str]]:
    """Return the rows of a printed table, without its header."""
    assert done.returncode == 0, done.stderr
    return [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()[2:]]


@pytest.fixture
def run(out: Path) -> Callable[..., str]:
    """Return a function that runs the job on this machine and returns its handle."""

    def call(torchx: Torchx, *options: str) -> str:
        component = (f"{JOB}:experiment", "--out", str(out))
        return handle_in(torchx("run", *options, "-s", "local_cwd", *component))

    return call


@pytest.fixture
def on_local_cwd() -> tuple[list[str], list[str]]:
    return [], []


@pytest.fixture
def on_slurm(environment: dict[str, str]) -> Iterator[tuple[list[str], list[str]]]:
    """Start Slurm on this machine; yield options of ``torchx run`` and of the component."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-slurm-"))
    environment.update(slurm.start(folder))
    yield ["--wait"], []
    slurm.stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on_local_docker(
    environment: dict[str, str], repository: Path, root: Path, out: Path
) -> Iterator[tuple[list[str], list[str]]]:
    """Start a Docker Engine; yield options of ``torchx run`` and of the component.

    The containers mount this repository, this environment and the folders ``root`` and ``out``, but
    not the configuration file of the tracker.
    """
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    modules = sysconfig.get_path("purelib")
    sources = sorted(str(path) for path in repository.glob("packages/*/src"))
    environment.update(docker_engine.start(folder, python=True))
    arguments = ["--image", docker_engine.PYTHON, "--python", "python3"]
    arguments += ["--paths", ",".join([*sources, modules])]
    arguments += ["--mounts", ",".join(map(str, (repository, modules, root, out)))]
    yield ["--workspace", ""], arguments
    docker_engine.destroy(folder)


@pytest.mark.parametrize("scheduler", ["local_cwd", "local_docker", "slurm"])
def test_commands_show_artifacts_metadata_and_lineage(
    scheduler: str, configured: Torchx, out: Path, request: pytest.FixtureRequest
) -> None:
    options, arguments = request.getfixturevalue(f"on_{scheduler}")
    component = (f"{JOB}:experiment", "--out", out, *arguments)
    done = configured("run", "-s", scheduler, *options, *component)
    handle = handle_in(done, scheduler)
    assert table(configured("tracker", "list", "jobs")) == [[handle]], done.stderr
    metadata = dict(table(configured("tracker", "list", "metadata", handle)))
    assert metadata == {
        "trainer.0.done": "True",
        "trainer.1.done": "True",
        "evaluator.0.done": "True",
        "trainer.note": "é $HOME ${app_id}",
        "evaluator.note": "é $HOME ${app_id}",
    }
    artifacts = table(configured("tracker", "list", "artifacts", handle))
    assert sorted(row[0] for row in artifacts) == ["evaluator/0", "trainer/0", "trainer/1"]
    assert all(Path(row[1]).read_text() == row[0].partition("/")[0] for row in artifacts)
    tree = configured("tracker", "lineage", handle).stdout
    assert tree == f"{handle}\n└─ made from\n   └─ dataset/1 (train)\n"


def test_parent_run_comes_from_the_flag_or_the_variable(
    configured: Torchx, environment: dict[str, str], run: Callable[..., str]
) -> None:
    parent = run(configured)
    by_flag = run(configured, "--parent_run_id", parent)
    environment["TORCHX_PARENT_RUN_ID"] = by_flag
    by_variable = run(configured)
    del environment["TORCHX_PARENT_RUN_ID"]
    children = table(configured("tracker", "list", "jobs", "--parent-run-id", parent))
    assert children == [[by_flag]]
    done = configured("tracker", "lineage", "-o", "json", parent)
    lineage = json.loads(done.stdout)["trackers"]["fsspec"]
    assert lineage["descendants"] == [by_flag, by_variable]
    assert {"run_id": "dataset/1", "artifact": "train"} in lineage["sources"]


def test_job_carries_the_configuration_of_the_tracker(
    configured: Torchx, tmp_path: Path, root: Path, out: Path
) -> None:
    component = (f"{JOB}:experiment", "--out", out)
    done = configured("run", "--dryrun", "--json", "-s", "local_cwd", *component)
    assert done.returncode == 0, done.stderr
    (tmp_path / "tracker.conf").unlink()
    assert "tracker.conf" not in done.stdout
    from torchx_tracker.trackers import trackers_from_environ

    env = json.loads(done.stdout)["app"]["roles"][0]["env"]
    (tracker,) = trackers_from_environ(env)
    tracker.add_metadata("run", a=1)
    assert list(root.iterdir())


def test_tracker_may_be_configured_in_torchxconfig(
    torchx: Torchx, tmp_path: Path, root: Path, run: Callable[..., str]
) -> None:
    (tmp_path / "work" / ".torchxconfig").write_text(
        f"[torchx:tracker]\nfsspec=\n[tracker:fsspec]\nprotocol=file\nroot_path={root}\n"
    )
    handle = run(torchx)
    assert table(torchx("tracker", "list", "jobs")) == [[handle]]
