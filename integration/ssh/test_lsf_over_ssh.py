"""LSF's double on another machine: the conformance suite, and a job that runs the laptop's code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sshd as service
from ssh_conformance import ConformanceOverSsh

from patience import wait_for
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.lookup import find_host
from torchx_specs import AppDef, AppState, Role, Workspace
from torchx_specs.schedulers import Scheduler

DOUBLE = Path(__file__).resolve().parents[1] / "lsf" / "lsf_double.py"
PROGRAMS = (
    *("bsub", "bjobs", "bkill", "bparams", "brequeue", "bstop", "bresume", "bhist", "bhosts"),
)


@pytest.fixture(scope="session")
def lsf(machines: Path, client: None) -> Iterator[None]:
    """Give the machine ``bash`` the commands of the double."""
    home = service.home_of(machines, "bash")
    host = SshHost("bash")
    state, programs = host.resolve("lsf-double"), host.resolve("lsf-bin")
    for folder in (state, programs):
        host.make_dirs(folder, 0o700)
    host.write(f"{programs}/double.py", DOUBLE.read_bytes())
    for name in PROGRAMS:
        text = f'#!/bin/sh\nexec python3 -S {programs}/double.py {name} "$@"\n'
        host.write(f"{programs}/{name}", text, 0o700)
    host.close()
    start_up = home / service.START_UP_FILES["bash"]
    before = start_up.read_text()
    start_up.write_text(f"export PATH={programs}:$PATH LSF_DOUBLE_DIR={state}\n{before}")
    find_host.cache_clear()
    yield
    start_up.write_text(before)
    find_host.cache_clear()


@pytest.fixture
def over_ssh(lsf: None, on_laptop: Callable[[str], Scheduler[Any]]) -> Scheduler[Any]:
    return on_laptop("lsf@bash")


class TestLsfOverSsh(ConformanceOverSsh):
    scheduler_name = "lsf"
    pending_cfg = {"extra": ["-b", "2035:1:1:0:0"]}
    poll_interval = 0.1

    @pytest.fixture
    def scheduler(self, over_ssh: Scheduler[Any]) -> Scheduler[Any]:
        return over_ssh


@pytest.mark.gate
def test_a_job_of_lsf_runs_the_code_of_the_laptop(over_ssh: Scheduler[Any]) -> None:
    scheduler = over_ssh
    Path("program.py").write_text("print('code of the laptop')\n")
    workspace = Workspace({str(Path.cwd()): ""})
    role = Role("sh", image="", entrypoint="python3", args=["program.py"], workspace=workspace)
    app_id = scheduler.submit(AppDef("app", [role]), {})
    wait_for(lambda: scheduler.describe(app_id).state == AppState.SUCCEEDED)  # type: ignore[union-attr]
    assert list(scheduler.log_iter(app_id, "sh")) == ["code of the laptop\n"]
