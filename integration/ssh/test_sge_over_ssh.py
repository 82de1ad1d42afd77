"""Grid Engine on another machine: the conformance suite, and a job that runs the laptop's code."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sge as cluster_service
import sshd as service
from service_process import recorded_pids
from ssh_conformance import ConformanceOverSsh

from patience import wait_for
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.lookup import find_host
from torchx_specs import AppDef, AppState, Role, Workspace
from torchx_specs.schedulers import Scheduler

# Grid Engine checks the name and the address of a client's machine. So sshd runs on the cluster's
# host ``head``, in whose namespaces ssh starts it.
MACHINE = """\
Host head
    HostName head
    ProxyCommand nsenter --target {pid} --uts --net --mount /usr/sbin/sshd -i -f {config}
"""


@pytest.fixture(scope="session")
def head(machines: Path, client: None) -> Iterator[None]:
    """Add the machine ``head``, which has the commands of a cluster, and the user of ``bash``."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-sge-"))
    folder.chmod(0o755)  # jobs of the user read the cluster's files
    start_up = service.home_of(machines, "bash") / service.START_UP_FILES["bash"]
    before = start_up.read_text()
    try:
        cluster_service.start(folder)
        config = machines / "config"
        user = config.read_text().partition("Host bash\n")[2].partition("Host ")[0]
        pid = recorded_pids(folder)["head"]
        machine = MACHINE.format(pid=pid, config=machines / "sshd-bash.conf")
        config.write_text(f"{config.read_text()}{machine}{user}")
        exports = "".join(f"export {one}\n" for one in cluster_service._assignments(folder))
        start_up.write_text(f"{exports}{before}")
        find_host.cache_clear()
        yield
        SshHost("head").ssh.disconnect()
    finally:
        start_up.write_text(before)
        find_host.cache_clear()
        cluster_service.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def over_ssh(head: None, on_laptop: Callable[[str], Scheduler[Any]]) -> Scheduler[Any]:
    return on_laptop("sge@head")


class TestSgeOverSsh(ConformanceOverSsh):
    scheduler_name = "sge"
    pending_cfg = {"extra": ["-a", "203501010000"]}
    time_limit_cfg = {"time": "2"}
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, over_ssh: Scheduler[Any]) -> Scheduler[Any]:
        return over_ssh


def test_a_job_of_grid_engine_runs_the_code_of_the_laptop(over_ssh: Scheduler[Any]) -> None:
    scheduler = over_ssh
    Path("program.py").write_text("print('code of the laptop')\n")
    workspace = Workspace({str(Path.cwd()): ""})
    role = Role("sh", image="", entrypoint="python3", args=["program.py"], workspace=workspace)
    app_id = scheduler.submit(AppDef("app", [role]), {})
    wait_for(lambda: scheduler.describe(app_id).state == AppState.SUCCEEDED)  # type: ignore[union-attr]
    assert list(scheduler.log_iter(app_id, "sh")) == ["code of the laptop\n"]
