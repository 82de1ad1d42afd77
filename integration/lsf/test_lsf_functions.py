"""Python functions as jobs of LSF."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from patience import PATIENCE, wait_for
from torchx_functions import Executor, JobCancelledError


@pytest.mark.usefixtures("lsf")
def test_a_cancelled_function_was_cancelled_and_not_interrupted(tmp_path: Path) -> None:
    def announce_and_wait(path: str) -> None:
        Path(path).touch()
        threading.Event().wait()

    # bkill sends SIGINT first, for which Python raises KeyboardInterrupt.
    executor = Executor(folder=tmp_path / "shared", scheduler="lsf", mem_mb=10)
    job = executor.submit(announce_and_wait, str(tmp_path / "started"))
    wait_for((tmp_path / "started").exists)
    assert job.cancel()
    with pytest.raises(JobCancelledError):
        job.result(PATIENCE)
