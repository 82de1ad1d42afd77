"""Tests of the parameters of executors, apps of functions, the program of a job, and futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchx_functions import Executor, FutureExecutor, Job, RemoteError, submit
from torchx_functions.app import PROGRAM, PROGRAM_ON_HOST, JobParameters, job_name, make_app
from torchx_functions.folders import open_group
from torchx_functions.outcome import Versions
from torchx_specs import BindMount, DeviceMount, VolumeMount
from torchx_specs.errors import RequestError

LONGEST = 120


def run_program(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *argv], capture_output=True, text=True)


def test_parameters_of_submitit_are_translated() -> None:
    executor = Executor(scheduler="slurm", cfg={"partition": "a"})
    executor.update_parameters(
        cpus_per_task=4,
        gpus_per_node=2,
        mem_gb=1.5,
        timeout_min=30,
        slurm_partition="b",
        slurm_array_parallelism=8,
        nodes=1,
    )
    parameters = executor.parameters
    assert (parameters.cpus, parameters.gpus, parameters.mem_mb) == (4, 2, 1536)
    assert parameters.max_parallel == 8
    assert executor._cfg == {"partition": "b", "time": "30"}
    local = Executor(slurm_partition="b")
    assert local._cfg == {}


def test_all_wrong_parameters_are_reported_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        Executor(cpu_per_task=1, gpus=-1, nodes=2, timeout_min=5, mem_gb="8")
    assert len(caught.value.problems) == 5
    assert "unknown parameter 'cpu_per_task'; did you mean 'cpus_per_task'?" in str(caught.value)
    assert "gpus is -1; it must be an integer, 0 or more" in str(caught.value)
    assert "mem_mb is '8'" in str(caught.value)


def test_what_cannot_be_called_is_refused_before_a_job_starts(tmp_path: Path) -> None:
    executor = Executor(tmp_path / "jobs")
    with pytest.raises(RequestError, match="3 cannot be called; give a function first"):
        executor.submit(3)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"\[1\] cannot be called; give a function first"):
        executor.map([1], [1])  # type: ignore[arg-type]
    assert list((tmp_path / "jobs").iterdir()) == []


def test_a_container_mounts_the_folder_of_the_jobs() -> None:
    parameters = JobParameters(image="python:3.11")
    role = make_app("f", "local_docker", parameters, "/r", "/r/g/0").roles[0]
    assert role.mounts == [BindMount("/r", "/r")]
    assert role.entrypoint == "python"
    parameters.mounts = [VolumeMount("claim", "/r")]
    role = make_app("f", "kubernetes", parameters, "/r/jobs", "/r/jobs/g/0").roles[0]
    assert role.mounts == [VolumeMount("claim", "/r")]


def test_a_container_that_cannot_read_the_folder_is_refused_in_one_line() -> None:
    mounts = [VolumeMount("claim", "/rr"), VolumeMount("claim", "/r", read_only=True)]
    mounts += [VolumeMount("claim", "r")]
    parameters = JobParameters(image="python:3.11", mounts=[*mounts, DeviceMount("/r", "/r")])
    with pytest.raises(RequestError, match="containers of scheduler 'kubernetes' cannot read /r,"):
        make_app("f", "kubernetes", parameters, "/r", "/r/g/0")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<lambda>", "lambda"),
        ("Train_It", "train-it"),
        ("9x", "fn-9x"),
        ("ü", "fn"),
        ("a" * 50, "a" * 24),
    ],
)
def test_names_of_functions_become_names_of_jobs(text: str, name: str) -> None:
    assert job_name(text) == name


def test_the_program_reports_a_missing_folder_in_one_line(tmp_path: Path) -> None:
    done = run_program(str(tmp_path / "missing" / "0"), str(os.geteuid()))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "mount the folder at the same path" in done.stderr
    assert run_program("x").returncode == 2


def test_the_program_as_root_gives_the_outcome_to_the_owner_of_the_folder() -> None:
    job = submit(int, "1")
    job.result(LONGEST)
    owner = 12345 if os.geteuid() == 0 else os.geteuid()
    os.unlink(os.path.join(job.folder, "outcome"))
    for path in (Path(job.folder).parent, *Path(job.folder).parent.rglob("*")):
        os.chown(path, owner, -1)
    assert run_program(job.folder, str(owner)).returncode == 0
    assert os.stat(os.path.join(job.folder, "outcome")).st_uid == owner
    assert run_program(job.folder, str(os.geteuid() + 1)).returncode == (2 if owner == 12345 else 0)


def test_the_program_refuses_a_function_that_others_can_replace() -> None:
    job = submit(int, "1")
    job.result(LONGEST)
    os.chmod(os.path.dirname(job.folder), 0o770)  # noqa: S103 - the fault under test
    done = run_program(job.folder, str(os.geteuid()))
    assert done.returncode == 2
    assert "other users can use" in done.stderr


def test_other_versions_in_the_job_are_one_clear_line() -> None:
    job = submit(int, "1")
    job.result(LONGEST)
    with open_group(os.path.dirname(job.folder)) as group:
        spec = json.loads(group.read("job.json"))
        spec["versions"] = {"python": "3.9.1", "cloudpickle": "3.0.0"}
        group.write("job.json", json.dumps(spec).encode())
    assert run_program(job.folder, str(os.geteuid())).returncode == 2
    error = Job.from_handle(job.handle).exception(LONGEST)
    assert isinstance(error, RemoteError)
    assert "but the function was pickled by Python 3.9.1 and cloudpickle 3.0.0" in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("python", "cloudpickle", "expected"),
    [
        ("3.11.2", "3.0.0", True),
        ("3.1.7", "3.1.2", False),
        ("3.12.7", "3.1.2", False),
        ("3.11.7", "2.2.1", False),
    ],
)
def test_versions_differ_in_pythons_minor_or_cloudpickles_major_number(
    python: str, cloudpickle: str, expected: bool
) -> None:
    assert Versions("3.11.7", "3.1.2").reads(Versions(python, cloudpickle)) is expected


def test_futures_work_with_concurrent_futures() -> None:
    with FutureExecutor() as executor:
        futures = [executor.submit(int, text) for text in ("1", "x")]
        done, not_done = concurrent.futures.wait(futures, LONGEST)
        assert len(done) == 2
        assert not not_done
        assert futures[0].result() == 1
        assert isinstance(futures[1].exception(), ValueError)
        assert list(executor.map(pow, [2, 3], [2, 2, 2], timeout=LONGEST)) == [4, 9]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


def test_futures_work_with_asyncio() -> None:
    async def run() -> int:
        with FutureExecutor() as executor:
            return await asyncio.get_running_loop().run_in_executor(executor, int, "5")

    assert asyncio.run(run()) == 5


def test_cancel_of_a_future_cancels_the_job() -> None:
    executor = FutureExecutor()
    future = executor.submit(time.sleep, 10_000)
    assert future.cancel()
    concurrent.futures.wait([future], LONGEST)
    executor.shutdown()
    assert future.cancelled()
    assert isinstance(future.job.exception(LONGEST), concurrent.futures.CancelledError)


def test_a_job_imports_its_own_modules_not_those_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("json", "pickle", "cloudpickle"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "module_of_the_job.py").write_text("VALUE = 7\n")
    monkeypatch.chdir(tmp_path)
    job = submit(lambda: __import__("module_of_the_job").VALUE)
    assert job.result(LONGEST) == 7
    assert not (tmp_path / "ran").exists()


def test_an_old_python_of_another_machine_is_named() -> None:
    program = f"import sys; sys.version_info = (3, 9)\n{PROGRAM_ON_HOST}"
    command = [sys.executable, "-c", program, "/folder/0", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{sys.executable} is older than Python 3.10; set python=" in done.stderr
