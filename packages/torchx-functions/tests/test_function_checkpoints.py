"""Tests of functions that are stopped by a signal, and go on in the next attempt of their job."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from function_helpers import Counter, announce_and_sleep

from patience import PATIENCE, wait_for
from torchx_functions import Executor, Job, RemoteError, submit
from torchx_specs import AppState


def stop(folder: Path, count: int, number: signal.Signals) -> None:
    """Send a signal to the process that has reached ``count``."""
    file = folder / f"pid-{count}"
    wait_for(lambda: file.exists() and file.read_text())
    os.kill(int(file.read_text()), number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_an_object_with_a_checkpoint_goes_on_in_the_next_attempt(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "go-0").touch()
    job = Executor(retries=1).submit(Counter(str(tmp_path)), 2)
    stop(tmp_path, 1, number)
    (tmp_path / "go-1").touch()
    assert job.result(PATIENCE) == (1, 2)
    log = list(job.log())
    assert f"torchx_functions: checkpoint made after {number.name}\n" in log
    assert "torchx_functions: the function goes on from its checkpoint\n" in log


def test_a_checkpoint_may_change_the_arguments(tmp_path: Path) -> None:
    job = Executor(retries=1).submit(Counter(str(tmp_path), "call"), 10)
    stop(tmp_path, 0, signal.SIGTERM)
    (tmp_path / "go-0").touch()
    assert job.result(PATIENCE) == (0, 10)


def test_a_second_stop_continues_from_the_first_checkpoint(tmp_path: Path) -> None:
    job = Executor(retries=2).submit(Counter(str(tmp_path)), 3)
    for count in (0, 1):
        (tmp_path / f"go-{count}").touch()
        stop(tmp_path, count + 1, signal.SIGTERM)
        wait_for((Path(job.folder) / "checkpoint.pkl").exists)
    (tmp_path / "go-2").touch()
    assert job.result(PATIENCE) == (2, 3)


@pytest.mark.parametrize(
    ("following", "message"),
    [
        ("nothing", "no checkpoint was made after SIGTERM: TypeError: checkpoint.. returned None"),
        ("error", "no checkpoint was made after SIGTERM: OSError: no space left on device"),
    ],
)
def test_a_checkpoint_that_fails_is_the_error_of_the_job(
    tmp_path: Path, following: str, message: str
) -> None:
    job = submit(Counter(str(tmp_path), following), 1)
    stop(tmp_path, 0, signal.SIGTERM)
    with pytest.raises(RemoteError, match=message):
        job.result(PATIENCE)


def test_a_function_without_a_checkpoint_starts_anew_and_the_log_says_so(tmp_path: Path) -> None:
    def second(folder: str) -> str:
        path = Path(folder, "pid-0")
        if path.exists():
            return "anew"
        path.write_text(str(os.getpid()))
        announce_and_sleep(f"{folder}/up")
        raise AssertionError

    job = Executor(retries=1).submit(second, str(tmp_path))
    wait_for((tmp_path / "up").exists)
    stop(tmp_path, 0, signal.SIGTERM)
    assert job.result(PATIENCE) == "anew"
    assert any("without a checkpoint, the function starts anew" in line for line in job.log())


def test_a_cancelled_job_with_a_checkpoint_is_cancelled(tmp_path: Path) -> None:
    job = submit(Counter(str(tmp_path)), 1)
    wait_for((tmp_path / "pid-0").exists)
    assert job.cancel()
    wait_for(job.done)
    status = job.status()
    assert status is not None
    assert status.state == AppState.CANCELLED


def test_the_state_after_a_result_is_an_end(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("no")

    def state_after(job: Job[object]) -> AppState:
        job.exception(PATIENCE)
        status = job.status()
        assert status is not None
        return status.state

    assert state_after(submit(abs, -1)) == AppState.SUCCEEDED
    assert state_after(submit(fail)) == AppState.FAILED
    assert [state_after(job) for job in Executor().map(abs, [-1, 2])] == [AppState.SUCCEEDED] * 2


def test_the_log_has_the_output_of_the_job() -> None:
    job = submit(print, "hello from the job")
    job.result(PATIENCE)
    assert list(job.log(follow=True)) == ["hello from the job\n"]
