"""Fixtures: an empty home of Acme, and a worker process."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def acme_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the home folder, in which a worker runs the jobs of the queue ``default``."""
    home = tmp_path_factory.mktemp("acme")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACME_HOME", str(home))
        command = [sys.executable, "-c", "from acme_torchx.worker import main; main()"]
        with subprocess.Popen([*command, "--cpus", "64"], stdout=subprocess.PIPE) as worker:  # noqa: S603
            assert worker.stdout is not None
            assert b"64 CPUs for the jobs of queue default" in worker.stdout.readline()
            yield home
            worker.terminate()
            assert worker.wait(60) == 0
