"""Functions and sweeps as jobs of a Slurm cluster on another machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_proxy import Proxy

from patience import PATIENCE, wait_for
from torchx_functions import (
    Executor,
    Job,
    JobCancelledError,
    JobGroup,
    NoResultError,
    UnsafeFolderError,
)
from torchx_functions.job import default_runner
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.lookup import find_host
from torchx_runner import get_runner
from torchx_specs import AppState
from torchx_specs.errors import ConfigError, RequestError
from torchx_sweep import api as sweep

PYTHON = f"python3.{sys.version_info.minor}"


@pytest.fixture(autouse=True)
def laptop(work: Path) -> Iterator[Path]:
    """Return the working directory of a laptop whose user uses the machine ``bash``."""
    default_runner.cache_clear()
    yield work
    default_runner().close()
    default_runner.cache_clear()
    find_host("bash").run(["scancel", "-u", find_host("bash").user()])


def results_of(jobs: JobGroup[Any]) -> list[Any]:
    """Return the results of a map, whose driver has ended."""
    found = list(jobs.results(PATIENCE))
    wait_for(lambda: sweep.status(jobs.handle).state == AppState.SUCCEEDED)
    return found


def executor(**options: Any) -> Executor:
    return Executor(scheduler="slurm@bash", python=PYTHON, **options)


@pytest.mark.gate
def test_a_function_runs_where_nothing_is_installed(machines: Path) -> None:
    def where(name: str) -> tuple[str, str, bool]:
        import importlib.util

        spec = importlib.util.find_spec("torchx_functions")
        is_sent = spec is not None and "modules.zip" in str(spec.origin)
        return os.environ[name], os.environ["SLURM_JOB_ID"], is_sent

    job = executor().submit(where, "HOME")
    home, number, is_sent = job.result(PATIENCE)
    assert home == find_host("bash").resolve("~")
    assert job.handle == f"slurm@bash://torchx/{number}"
    assert is_sent
    assert Job.from_handle(job.handle).result(PATIENCE) == (home, number, True)


@pytest.mark.gate
def test_a_map_is_one_array_on_the_host() -> None:
    jobs = Executor(scheduler="slurm", cfg={"host": "bash"}, python=PYTHON).map(
        pow, [2] * 4, range(4)
    )
    assert results_of(jobs) == [1, 2, 4, 8]
    assert {job.handle.partition("_")[0] for job in jobs} == {jobs[0].handle.partition("_")[0]}
    assert list(JobGroup.from_handle(jobs.handle).results(PATIENCE)) == [1, 2, 4, 8]


def test_errors_of_functions_come_back() -> None:
    def fail() -> None:
        raise ValueError("too large")

    def end() -> None:
        os.kill(os.getpid(), 9)

    failed, ended = executor().submit(fail), executor().submit(end)
    with pytest.raises(ValueError, match="too large") as caught:
        failed.result(PATIENCE)
    assert "in fail" in str(caught.value.__cause__)
    with pytest.raises(NoResultError, match=r"ended without a result \(FAILED"):
        ended.result(PATIENCE)


def test_a_job_that_was_cancelled_before_its_start_never_calls_its_function() -> None:
    waiting = executor(cfg={"extra": ["hold"]}).submit(pow, 2, 3)
    assert waiting.cancel()
    with pytest.raises(JobCancelledError):
        waiting.result(PATIENCE)
    claim = waiting.folder.rpartition("/functions/")[2]
    assert "cancelled" in find_host("bash").read_text(
        find_host("bash").resolve(f"~/.torchx/functions/{claim}/claim")
    )


def test_a_failed_function_is_called_again() -> None:
    def second(folder: str) -> str:
        path = Path(folder, "first")
        if not path.exists():
            path.touch()
            raise RuntimeError("first attempt")
        return "second attempt"

    folder = find_host("bash").resolve("~/attempts")
    find_host("bash").make_dirs(folder)
    jobs = executor(retries=1).map(second, [folder])
    assert results_of(jobs) == ["second attempt"]


def test_a_folder_of_the_host_is_used_and_another_users_is_refused(machines: Path) -> None:
    host = find_host("bash")
    folder = host.resolve("~/shared/jobs")
    job = executor(folder="~/shared/jobs").submit(pow, 2, 5)
    assert job.result(PATIENCE) == 32
    assert host.list(folder) == [os.path.basename(os.path.dirname(job.folder))]
    with pytest.raises(ConfigError, match="folder= on bash: /proc/jobs cannot be created"):
        executor(folder="/proc/jobs").submit(pow, 2, 5)
    host.run(["chmod", "777", folder])
    with pytest.raises(UnsafeFolderError, match="bash: another user may have changed"):
        executor(folder="~/shared/jobs").submit(pow, 2, 5).result(PATIENCE)
    host.remove_tree(folder)
    waiting = executor(folder="~/shared/jobs", cfg={"extra": ["hold"]}).submit(pow, 2, 5)
    host.remove_tree(folder)
    with pytest.raises(NoResultError, match="was deleted"):
        waiting.result(PATIENCE)


def test_a_refused_submission_leaves_no_folder_on_the_host() -> None:
    host = find_host("bash")
    root = host.resolve("~/.torchx/functions")
    host.make_dirs(root)
    before = host.list(root)
    with pytest.raises(RequestError, match="no_such_option"):
        executor(cfg={"no_such_option": 1}).submit(pow, 2, 5)
    assert host.list(root) == before


def test_results_arrive_after_a_cut_connection(
    connect: Callable[[str], SshHost], alias: Callable[..., str], proxy: Callable[..., Proxy]
) -> None:
    cutter = proxy()
    name = alias(Port=cutter.port)
    jobs = Executor(scheduler=f"slurm@{name}", python=PYTHON).map(pow, [3] * 3, range(3))
    cutter.cut()
    assert results_of(jobs) == [1, 3, 9]
    find_host(name).close()  # type: ignore[attr-defined]
    SshHost(name).ssh.disconnect()


def test_prune_removes_the_folders_on_both_machines(
    environment: dict[str, str], work: Path
) -> None:
    job = executor().submit(pow, 2, 3)
    assert job.result(PATIENCE) == 8
    host = find_host("bash")
    name = os.path.basename(os.path.dirname(job.folder))
    there = host.resolve(f"~/.torchx/functions/{name}")
    assert host.exists(there)
    done = subprocess.run(
        [
            *(f"{Path(sys.executable).parent}/torchx", "workspace", "prune", "--yes"),
            *("--only", "functions", "--older-than", "0s"),
        ],
        env={**environment, "TORCHX_HOME": os.environ["TORCHX_HOME"]},
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not host.exists(there)
    assert not os.path.exists(job.folder)


@pytest.mark.gate
def test_the_option_host_of_a_sweep_of_the_api(work: Path) -> None:
    with get_runner() as runner:
        handle = sweep.sweep(
            runner,
            "utils.sh",
            ["echo"],
            "slurm",
            {"host": "bash"},
            grid={"num_replicas": [1, 2]},
        )
        wait_for(lambda: sweep.status(handle).state == AppState.SUCCEEDED)
        assert {one.handle.partition("://")[0] for one in sweep.results(handle)} == {"slurm@bash"}
