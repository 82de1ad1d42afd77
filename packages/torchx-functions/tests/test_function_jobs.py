"""Tests of functions as real jobs of ``local_cwd``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from function_helpers import UnloadableError, Unpickled, announce_and_sleep, interrupt
from hypothesis import assume, given
from hypothesis import strategies as st

from patience import PATIENCE, wait_for
from torchx_functions import (
    Executor,
    Job,
    JobCancelledError,
    JobGroup,
    NoResultError,
    PickleError,
    RemoteError,
    RemoteTraceback,
    ResultTimeoutError,
    UnsafeFolderError,
    as_completed,
    submit,
)
from torchx_functions import map as map_jobs
from torchx_functions.folders import PrivateFolder
from torchx_specs import AppState
from torchx_specs.errors import ConfigError, RequestError, UnknownAppException
from torchx_sweep import api as sweep


def test_a_job_returns_the_result_of_its_function() -> None:
    job = submit(divmod, 17, 5)
    assert job.result(PATIENCE) == (3, 2)
    assert job.exception() is None
    assert job.done()
    assert job.cancel() is False
    assert job.handle.startswith("local_cwd://torchx/divmod-")


def test_closures_and_keyword_arguments_are_pickled_by_value() -> None:
    factor = 3

    def scaled(value: int, *, offset: int = 0) -> int:
        return value * factor + offset

    assert submit(scaled, 2, offset=1).result(PATIENCE) == 7


def test_another_process_gets_the_result_by_the_handle() -> None:
    program = "from torchx_functions import submit; print(submit(pow, 2, 10).handle)"
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    job = Job.from_handle(done.stdout.decode().strip())
    assert job.result(PATIENCE) == 1024
    status = job.status()
    assert status is not None
    assert status.state == AppState.SUCCEEDED


def test_an_unknown_handle_is_an_unknown_app() -> None:
    with pytest.raises(UnknownAppException, match="local_cwd://torchx/other"):
        Job.from_handle("local_cwd://torchx/other")


def test_the_original_exception_is_raised_with_the_traceback_of_the_job() -> None:
    def fail() -> None:
        {}["missing"]  # type: ignore[index]

    job = submit(fail)
    with pytest.raises(KeyError, match="missing") as caught:
        job.result(PATIENCE)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in fail" in str(caught.value.__cause__)
    assert job.exception() is caught.value


def test_an_exception_that_cannot_be_unpickled_is_reported_with_type_and_traceback() -> None:
    def fail() -> None:
        raise UnloadableError("one", "two")

    job = submit(fail)
    error = job.exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert error.type_name == "UnloadableError"
    assert job.handle in str(error)
    assert "cannot be unpickled: TypeError" in str(error)
    assert "one two" in str(error.__cause__)


def test_an_exception_that_cannot_be_pickled_is_reported_with_its_message() -> None:
    def fail() -> None:
        error = ValueError("it holds a lock")
        error.lock = threading.Lock()  # type: ignore[attr-defined]
        raise error

    error = submit(fail).exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert "ValueError: it holds a lock; torchx log local_cwd://" in str(error)


def test_a_result_that_cannot_be_pickled_is_an_error() -> None:
    error = submit(threading.Lock).exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert "the result cannot be pickled: TypeError" in str(error)


def test_a_function_that_cannot_be_pickled_is_refused_before_submission(home: Path) -> None:
    lock = threading.Lock()

    def locked() -> None:
        lock.acquire()

    with pytest.raises(PickleError, match="the function cannot be pickled: TypeError"):
        submit(locked)
    with pytest.raises(PickleError, match="the arguments of call 1 cannot be pickled"):
        map_jobs(str, [1, lock])
    assert not any((home / "functions").glob("*"))


def test_a_result_of_50_mb_arrives_whole() -> None:
    result = submit(bytes, 50_000_000).result(PATIENCE)
    assert result == bytes(50_000_000)


@pytest.mark.parametrize(
    ("function", "end"), [(sys.exit, "SystemExit()"), (interrupt, "KeyboardInterrupt()")]
)
def test_a_job_that_exits_is_an_error_that_does_not_end_the_client(
    function: Callable[[], None], end: str
) -> None:
    error = submit(function).exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert f"ended the program by {end}; torchx log local_cwd://" in str(error)


@pytest.mark.parametrize(
    "end",
    [
        lambda: os._exit(0),
        lambda: os.kill(os.getpid(), signal.SIGINT),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
    ],
)
def test_a_job_without_a_result_names_handle_and_log_command(end: object) -> None:
    job = submit(end)  # type: ignore[arg-type]
    error = job.exception(PATIENCE)
    assert isinstance(error, NoResultError)
    assert f"job {job.handle} ended without a result" in str(error)
    assert f"torchx log {job.handle}" in str(error)
    assert "\n" not in str(error)


def test_cancel_ends_a_running_function(tmp_path: Path) -> None:
    job = submit(announce_and_sleep, str(tmp_path / "started"))
    wait_for((tmp_path / "started").exists)
    assert not job.done()
    assert job.cancel()
    with pytest.raises(JobCancelledError, match="was cancelled"):
        job.result(PATIENCE)


def test_a_timeout_leaves_the_job_running(tmp_path: Path) -> None:
    job = submit(announce_and_sleep, str(tmp_path / "started"))
    with pytest.raises(ResultTimeoutError, match=r"has not ended after 0\.1 s; it continues"):
        job.result(0.1)
    wait_for((tmp_path / "started").exists)
    job.cancel()


def test_a_deleted_folder_is_named(tmp_path: Path) -> None:
    import shutil

    job = submit(announce_and_sleep, str(tmp_path / "started"))
    wait_for((tmp_path / "started").exists)
    shutil.rmtree(job.folder)
    with pytest.raises(NoResultError, match=r"its folder .*/0 was deleted"):
        job.result(PATIENCE)
    job._group.runner.cancel(job.handle)


def test_retries_run_a_failed_function_again(tmp_path: Path) -> None:
    def fail_once(path: str) -> str:
        if not os.path.exists(path):
            Path(path).touch()
            raise RuntimeError("first attempt")
        return "second attempt"

    path = str(tmp_path / "attempted")
    assert Executor(retries=1).submit(fail_once, path).result(PATIENCE) == "second attempt"
    os.unlink(path)
    jobs = Executor(retries=1).map(fail_once, [path])
    assert list(jobs.results(PATIENCE)) == ["second attempt"]


# The following tests read files that another user may have written.


def test_a_folder_of_another_user_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    job = submit(int, "1")
    assert job.result(PATIENCE) == 1
    again = Job.from_handle(job.handle)
    if os.geteuid() == 0:
        os.chown(job.folder, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UnsafeFolderError, match=r"it belongs to .*; nothing was read"):
        again.result(PATIENCE)


def test_a_folder_that_others_can_use_is_not_read() -> None:
    job = submit(int, "1")
    job.result(PATIENCE)
    os.chmod(job.folder, 0o755)  # noqa: S103 - the fault under test
    with pytest.raises(UnsafeFolderError, match=r"mode 0755.*chmod go-rwx"):
        Job.from_handle(job.handle).result(PATIENCE)
    os.chmod(job.folder, 0o700)
    os.chmod(os.path.dirname(os.path.dirname(job.folder)), 0o777)  # noqa: S103 - the fault under test
    with pytest.raises(ConfigError, match="other users can write to"):
        Job.from_handle(job.handle)


def test_a_symbolic_link_in_place_of_a_result_or_a_folder_is_not_followed(tmp_path: Path) -> None:
    job = submit(int, "1")
    job.result(PATIENCE)
    outcome = Path(job.folder, "outcome")
    moved = outcome.rename(tmp_path / "outcome")
    outcome.symlink_to(moved)
    with pytest.raises(UnsafeFolderError, match="outcome is a symbolic link"):
        Job.from_handle(job.handle).result(PATIENCE)
    folder = Path(job.folder)
    moved = folder.rename(tmp_path / "folder")
    folder.symlink_to(moved)
    with pytest.raises(UnsafeFolderError, match="symbolic links are refused"):
        Job.from_handle(job.handle).result(PATIENCE)


def test_a_fifo_in_place_of_a_result_does_not_block() -> None:
    job = submit(int, "1")
    job.result(PATIENCE)
    outcome = Path(job.folder, "outcome")
    outcome.unlink()
    os.mkfifo(outcome, 0o600)
    with pytest.raises(UnsafeFolderError, match="not a regular file"):
        Job.from_handle(job.handle).result(PATIENCE)


@pytest.mark.parametrize("retries", [0, 1])
def test_one_changed_bit_of_an_outcome_is_reported(retries: int) -> None:
    executor = Executor()
    executor.update_parameters(retries=retries)
    job = executor.submit(int, "1")
    assert job.result(PATIENCE) == 1
    path = Path(job.folder, "outcome")
    content = path.read_bytes()
    at = content.rindex(b"K\x01") + 1  # the pickle of 1
    path.write_bytes(content[:at] + b"\x03" + content[at + 1 :])
    error = Job.from_handle(job.handle).exception(PATIENCE)
    assert isinstance(error, NoResultError)
    assert f"cannot be read: the file {path} is damaged" in str(error)


def test_a_damaged_record_of_a_job_is_reported() -> None:
    job = submit(int, "1")
    job.result(PATIENCE)
    Path(job.folder).with_name("job.json").write_bytes(b"[" * 100_000)
    with pytest.raises(NoResultError, match=r"job\.json is damaged"):
        Job.from_handle(job.handle)


@given(data=st.data())
def test_each_damage_of_a_file_is_reported(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("folder")
    path.chmod(0o700)
    with PrivateFolder(str(path), 1) as folder:
        folder.write("file", b"some", b" content")
        assert folder.read("file") == b"some content"
        content = (path / "file").read_bytes()
        start, end = sorted(data.draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        damaged = content[:start] + data.draw(st.binary(max_size=80)) + content[end:]
        assume(damaged != content)
        (path / "file").write_bytes(damaged)
        with pytest.raises(NoResultError, match=f"{path}/file is damaged"):
            folder.read("file")


@pytest.mark.parametrize("end", [interrupt, sys.exit])
def test_an_object_that_ends_the_program_when_it_is_unpickled_is_an_error(
    end: Callable[[], object],
) -> None:
    name = "KeyboardInterrupt" if end is interrupt else "SystemExit"
    error = submit(Unpickled, end).exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert f"cannot be unpickled: {name}" in str(error)
    error = submit(repr, Unpickled(end)).exception(PATIENCE)
    assert isinstance(error, RemoteError)
    assert f"its arguments cannot be unpickled in the job: {name}" in str(error)


def test_a_handle_that_is_not_valid_unicode_is_unknown() -> None:
    with pytest.raises(UnknownAppException):
        Job.from_handle("local_cwd://torchx/\ud800")


def test_files_and_folders_are_private_whatever_the_umask(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        job = Executor(folder=tmp_path / "shared").submit(int, "1")
        assert job.result(PATIENCE) == 1
    finally:
        os.umask(previous)
    for parent, _, files in os.walk(tmp_path / "shared"):
        assert os.stat(parent).st_mode & 0o777 == 0o700
        for name in files:
            assert os.stat(os.path.join(parent, name)).st_mode & 0o777 == 0o600


# The following tests submit many jobs.


def test_map_returns_the_results_in_the_order_of_the_arguments() -> None:
    jobs = map_jobs(pow, [2, 3, 4], [5, 4, 3])
    assert list(jobs.results(PATIENCE)) == [32, 81, 64]
    assert [job.result() for job in JobGroup.from_handle(jobs.handle)] == [32, 81, 64]
    assert len({job.handle for job in jobs}) == 3
    with pytest.raises(RequestError, match=r"use JobGroup\.from_handle"):
        Job.from_handle(jobs.handle)


def test_as_completed_yields_a_job_before_slower_jobs(tmp_path: Path) -> None:
    def wait_until_exists(path: str) -> str:
        while not os.path.exists(path):
            time.sleep(0.01)
        return path

    slow, fast = submit(wait_until_exists, str(tmp_path / "go")), submit(int, "1")
    completed = as_completed([slow, fast], PATIENCE)
    assert next(completed) is fast  # type: ignore[comparison-overlap]
    (tmp_path / "go").touch()
    assert [job.result() for job in completed] == [str(tmp_path / "go")]
    with pytest.raises(ResultTimeoutError, match="1 jobs have not ended"):
        list(as_completed([submit(announce_and_sleep, str(tmp_path / "a"))], 0.1))


def test_a_cancelled_job_of_a_map_never_calls_the_function(tmp_path: Path) -> None:
    def wait_then_touch(number: int) -> None:
        while not (tmp_path / "go").exists():
            time.sleep(0.01)
        (tmp_path / f"called-{number}").touch()

    jobs = Executor(max_parallel=1).map(wait_then_touch, [0, 1, 2])
    assert jobs[1].cancel()
    (tmp_path / "go").touch()
    assert jobs[2].result(PATIENCE) is None
    with pytest.raises(JobCancelledError):
        jobs[1].result(PATIENCE)
    assert not (tmp_path / "called-1").exists()


def test_a_map_submits_each_job_once_after_its_client_is_killed(tmp_path: Path) -> None:
    program = f"""
import os, sys, time
from torchx_functions import Executor
def record(number):
    with open({str(tmp_path / "calls")!r}, "a") as file:
        file.write(f"{{number}}\\n")
    return number
jobs = Executor(max_parallel=2).map(record, range(12))
print(jobs.handle, flush=True)
time.sleep(1000)
"""
    client = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    handle = client.stdout.readline().strip()
    client.send_signal(signal.SIGKILL)
    client.communicate()
    jobs = JobGroup.from_handle(handle)
    assert list(jobs.results(PATIENCE)) == list(range(12))
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(map(int, calls)) == list(range(12))


def test_cancel_of_a_map_ends_all_its_jobs(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"started-{number}") for number in range(3)]
    jobs = Executor(max_parallel=1).map(announce_and_sleep, paths)
    wait_for((tmp_path / "started-0").exists)
    jobs.cancel()
    for job in as_completed(jobs, PATIENCE):
        assert isinstance(job.exception(), JobCancelledError)
    assert not (tmp_path / "started-2").exists()


def test_the_jobs_of_a_deleted_map_are_errors() -> None:
    jobs = map_jobs(int, ["1"])
    next(jobs.results(PATIENCE))
    os.unlink(os.path.join(jobs[0].folder, "outcome"))
    sweep.delete(jobs.handle, jobs.runner)
    [job] = JobGroup.from_handle(jobs.handle)
    error = job.exception(PATIENCE)
    assert isinstance(error, NoResultError)
    message = f"job 0 of {jobs.handle} ended without a result (its sweep does not exist)"
    assert str(error) == message
    assert job.status() is None


@pytest.mark.parametrize("scheduler", ["local_cwd", "unknown"])
def test_a_refused_request_leaves_no_folder(tmp_path: Path, scheduler: str) -> None:
    executor = Executor(tmp_path / "jobs", scheduler, {"unknown_option": 1})
    with pytest.raises(RequestError, match="unknown"):
        executor.submit(int)
    with pytest.raises(RequestError, match="unknown"):
        executor.map(int, ["1"])
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize(
    ("iterables", "message"),
    [
        ([], "needs an iterable"),
        ([[]], "have no elements"),
        ([[1], [1, 2]], "different lengths"),
    ],
)
def test_map_without_equally_many_arguments_is_refused(
    iterables: list[list[int]], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        Executor().map(print, *iterables)
