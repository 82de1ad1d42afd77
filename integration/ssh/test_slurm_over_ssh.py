"""Slurm on another machine: the conformance suite, and stories through the command."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sshd as service

from torchx_kit.hosts.lookup import find_host
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_specs.errors import RequestError
from torchx_specs.schedulers import Scheduler
from torchx_testing.scheduler_suite import SchedulerConformance

Torchx = Callable[..., "subprocess.CompletedProcess[str]"]


class TestSlurmOverSsh(SchedulerConformance):
    scheduler_name = "slurm"
    pending_cfg = {"extra": ["hold"]}
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, work: Path) -> Iterator[Scheduler[Any]]:
        scheduler = InstalledSchedulers()["slurm@bash"]("conformance")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def store_secret(self) -> Callable[[str, str, str], object]:
        """Return a function that writes a secret where the job reads it: on the cluster."""

        def store(name: str, key: str, value: str) -> None:
            host = find_host("bash")
            folder = host.resolve("~")
            for part in (".torchx", "secrets", name):
                folder = f"{folder}/{part}"
                host.make_dirs(folder, 0o700)
            host.write(f"{folder}/{key}", value)

        return store


@pytest.fixture
def laptop(work: Path, environment: dict[str, str]) -> Torchx:
    """Return a function that runs ``torchx`` as a user does whose cluster is behind SSH."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [f"{Path(sys.executable).parent}/torchx", *arguments],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.gate
def test_a_user_works_with_a_job_on_another_machine(
    laptop: Torchx, machines: Path, work: Path
) -> None:
    (work / "program.py").write_text("print('code of the laptop')\n")
    arguments = ["utils.sh", "sh", "-c", "echo $USER from $HOME; python3 program.py"]
    done = laptop("run", "-s", "slurm@bash", "--wait", *arguments)
    handle = output(done).strip()
    assert handle.startswith("slurm@bash://torchx/")
    assert "SUCCEEDED" in output(laptop("status", handle))
    home = service.home_of(machines, "bash")
    shown = output(laptop("log", handle))
    assert f"{service.user_of(machines, 'bash')} from {home}" in shown
    assert "code of the laptop" in shown
    assert handle in output(laptop("list", "-s", "slurm@bash"))
    output(laptop("delete", handle))
    assert handle not in output(laptop("list", "-s", "slurm@bash"))


@pytest.mark.gate
@pytest.mark.parametrize("source", ["option", "file"])
def test_the_host_may_be_an_option(laptop: Torchx, work: Path, source: str) -> None:
    option = ["-cfg", "host=bash"] if source == "option" else []
    if source == "file":
        (work / ".torchxconfig").write_text("[slurm]\nhost = bash\n")
    handle = output(laptop("run", "-s", "slurm", *option, "utils.sh", "sleep", "86400")).strip()
    assert handle.startswith("slurm@bash://torchx/")
    output(laptop("cancel", handle))
    assert "CANCELLED" in output(laptop("status", handle))


def test_a_scheduler_of_this_machine_uses_no_host() -> None:
    with pytest.raises(RequestError, match="'local_cwd' cannot use another machine"):
        InstalledSchedulers()["local_cwd@bash"]("test")


def test_an_unreachable_host_is_one_line_and_exit_code_3(laptop: Torchx) -> None:
    done = laptop("list", "-s", "slurm@no-such-host.invalid")
    assert done.returncode == 3
    assert "Could not resolve hostname" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_runs_in_a_folder_of_the_cluster(laptop: Torchx, machines: Path) -> None:
    folder = service.home_of(machines, "bash") / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("from the cluster")
    shutil.chown(folder, service.user_of(machines, "bash"))
    run = ["run", "-s", "slurm@bash", "-cfg", f"job_dir={folder}", "--wait"]
    handle = output(laptop(*run, "utils.sh", "cat", "data.txt")).strip()
    assert "from the cluster" in output(laptop("log", handle))
