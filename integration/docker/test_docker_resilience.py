"""Apps with the option ``requeue`` on a real engine."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker_engine
import pytest
import resilience
import resilient_loop
from docker_engine import BUSYBOX, PYTHON
from resilience import AttemptCases, at_fault, reasons
from waiting import described, wait_for

import torchx_resilience
from patience import wait_for as wait_until
from torchx_resilience import contract
from torchx_sched_docker.attempts import ENV_RESUME_OWNER
from torchx_sched_docker.client import list_containers
from torchx_sched_docker.labels import LABEL_APP_ID
from torchx_sched_docker.scheduler import DockerScheduler, create_scheduler
from torchx_specs import AppDef, AppState, BindMount, Resource, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.schedulers import DescribeAppResponse, Scheduler

LIBRARY = Path(torchx_resilience.__file__).parent


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of a test, which the containers have, too."""
    folder = tmp_path / "submitted from here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def container(scheduler: DockerScheduler, app_id: str, k: int = 1) -> dict[str, Any]:
    """Return the engine's description of a container of the first role."""
    summary = list_containers(scheduler._docker_client, app_id)[k]
    found: dict[str, Any] = scheduler._docker_client.api.inspect_container(summary["Id"])
    return found


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def signal_main_process(scheduler: DockerScheduler, app_id: str, number: int) -> None:
    pid = container(scheduler, app_id)["State"]["Pid"]
    assert pid > 0
    os.kill(pid, number)


def docker_stop(scheduler: DockerScheduler, app_id: str) -> None:
    docker("stop", container(scheduler, app_id)["Id"])


def docker_kill(scheduler: DockerScheduler, app_id: str) -> None:
    docker("kill", container(scheduler, app_id)["Id"])


def kill_container(scheduler: DockerScheduler, app_id: str) -> None:
    signal_main_process(scheduler, app_id, signal.SIGKILL)


def terminate_container(scheduler: DockerScheduler, app_id: str) -> None:
    signal_main_process(scheduler, app_id, signal.SIGTERM)


def terminate_program(scheduler: DockerScheduler, app_id: str) -> None:
    pid = Path("pid-1").read_text()
    docker("exec", container(scheduler, app_id)["Id"], "sh", "-c", f"kill -TERM {pid}")


class TestAttempts(AttemptCases):
    limit = "5s"
    knows_nodes = False

    def submit(self, scheduler: Scheduler[Any], fault: str, retries: int = 0, **cfg: Any) -> str:
        # An engine in a chroot does not have the folder of the tests.
        work = Path.cwd()
        program = shutil.copy(resilient_loop.__file__, work)
        shutil.copytree(LIBRARY, work / "library" / LIBRARY.name)
        app = resilience.loop(work, fault, retries, python="python3", program=program)
        (role,) = app.roles
        role.image, role.resource = PYTHON, Resource(cpu=1, gpu=0, memMB=100)
        role.env["PYTHONPATH"] = str(work / "library")
        role.mounts = [BindMount(str(work), str(work))]
        return scheduler.submit(app, {"resume_dir": "resume", "pull": "never", **cfg})

    @pytest.mark.parametrize(
        ("end", "reason"),
        [
            # the rank commits a checkpoint after SIGTERM, and ends with exit code 75
            pytest.param(terminate_program, "requested", id="SIGTERM to the program"),
            pytest.param(terminate_container, "preempted", id="SIGTERM to the container"),
            pytest.param(docker_stop, "preempted", id="docker stop"),
            pytest.param(
                kill_container, "node-failure", id="container lost", marks=pytest.mark.gate
            ),
            pytest.param(docker_kill, "node-failure", id="docker kill"),
        ],
    )
    def test_job_that_the_system_starts_again(
        self,
        scheduler: DockerScheduler,
        end: Callable[[DockerScheduler, str], None],
        reason: str,
    ) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        Path("go").touch()
        end(scheduler, app_id)
        self.check(scheduler, app_id, reason)

    @pytest.mark.parametrize(("fault", "reason"), [("kill", "failed"), ("memory", "out-of-memory")])
    def test_killed_program_starts_again(
        self, scheduler: DockerScheduler, fault: str, reason: str
    ) -> None:
        app_id = self.submit(scheduler, fault, 1)
        self.check(scheduler, app_id, reason)

    def test_app_goes_on_when_the_engine_has_restarted(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
        try:
            for name, value in docker_engine.start(folder, python=True).items():
                monkeypatch.setenv(name, value)
            scheduler = create_scheduler("test")
            app_id = self.submit(scheduler, "outside")
            at_fault(Path.cwd())
            Path("go").touch()
            docker_engine.stop(folder)
            docker_engine.start(folder)
            # no client starts the containers
            wait_until(lambda: len(list(Path.cwd().glob("weights-*"))) == resilience.WORLD)
            self.check(scheduler, app_id, "preempted")
            scheduler.delete(app_id)
            scheduler.close()
        finally:
            docker_engine.destroy(folder)


def shell(script: str, **role: Any) -> AppDef:
    """Return an app of one role that runs a shell script."""
    fields = {"name": "main", "image": BUSYBOX, **role}
    return AppDef("app", [Role(entrypoint="sh", args=["-c", script], **fields)])


def run(scheduler: DockerScheduler, app: AppDef, **cfg: Any) -> DescribeAppResponse:
    """Run an app with the option ``requeue`` to its end."""
    return wait_for(scheduler, scheduler.submit(app, {"pull": "never", "requeue": True, **cfg}))


def output(scheduler: DockerScheduler, app_id: str, role: str = "main", k: int = 0) -> list[str]:
    lines = scheduler.log_iter(app_id, role, k, should_tail=True)
    return [line.removesuffix("\n") for line in lines]


def test_budget_of_failures_ends_all_replicas(scheduler: DockerScheduler) -> None:
    script = "echo $TORCHX_ATTEMPT $TORCHX_RESTART_REASON; [ $TORCHX_REPLICA_ID = 0 ] || exit 3"
    found = run(scheduler, shell(f"{script}; sleep 86400", num_replicas=2, max_retries=1))
    assert found.state == AppState.FAILED
    assert found.msg.startswith("main/1 on ")
    assert found.msg.endswith(": exit code 3")
    assert reasons(found) == ["failed", "failed"]
    assert [r.exit_code for r in found.roles_statuses[0].replicas] == [143, 3]
    assert found.roles[0].max_retries == 1
    assert output(scheduler, found.app_id, k=1) == ["0", "--- attempt 2 ---", "1 failed"]
    (listed,) = scheduler.list()
    assert (listed.state, listed.exit_code) == (AppState.FAILED, 3)


@pytest.mark.gate
def test_list_starts_stopped_containers_as_describe_does(scheduler: DockerScheduler) -> None:
    app = shell("[ $TORCHX_ATTEMPT = 1 ] || sleep 86400", num_replicas=2)
    app_id = scheduler.submit(app, {"pull": "never", "requeue": True})
    described(scheduler, app_id, lambda found: len(found.attempts) == 1)
    docker_kill(scheduler, app_id)
    wait_until(lambda: container(scheduler, app_id)["State"]["Status"] == "exited")

    def is_listed() -> bool:
        (listed,) = scheduler.list()
        return listed.state == AppState.SUCCEEDED

    wait_until(is_listed)


def test_node_failures_have_a_budget(scheduler: DockerScheduler) -> None:
    app = shell("sleep 86400", num_replicas=2)
    app_id = scheduler.submit(app, {"pull": "never", "requeue": True, "max_node_failures": 1})
    for number in (0, 1):
        described(scheduler, app_id, lambda found, n=number: len(found.attempts) == n + 1)
        kill_container(scheduler, app_id)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert reasons(found) == ["node-failure", "node-failure"]
    assert "max_node_failures" in found.msg


def test_program_without_a_handler_is_killed_at_its_time_limit(scheduler: DockerScheduler) -> None:
    script = "[ $TORCHX_ATTEMPT = 1 ] && exit; trap '' TERM; while :; do sleep 1; done"
    assert reasons(run(scheduler, shell(script), time="1s")) == ["time-limit", "succeeded"]


def test_all_attempts_have_a_time_limit(scheduler: DockerScheduler) -> None:
    found = run(scheduler, shell("sleep 86400"), max_total_time="1s")
    assert found.state == AppState.FAILED
    assert "max_total_time" in found.msg


@pytest.mark.parametrize("init", [True, False])
def test_sigterm_without_a_handler_is_a_preemption(scheduler: DockerScheduler, init: bool) -> None:
    script = "[ $TORCHX_ATTEMPT = 1 ] && exit; kill -TERM $$; sleep 86400"
    found = run(scheduler, shell(script), init=init, requeue_exit_codes=["9"])
    assert reasons(found) == ["preempted", "succeeded"]


def test_success_of_a_deciding_role_ends_the_others(scheduler: DockerScheduler) -> None:
    client = shell("[ $TORCHX_ATTEMPT = 1 ] || exit 75", metadata={ENDS_APP_KEY: True}).roles[0]
    server = shell("sleep 86400", name="server", num_replicas=2).roles[0]
    helper = shell("true", name="helper").roles[0]
    found = run(scheduler, AppDef("app", [server, client, helper]))
    assert reasons(found) == ["requested", "succeeded"]
    states = [r.state for role in found.roles_statuses for r in role.replicas]
    assert states == [AppState.SUCCEEDED] * 4
    assert {r.exit_code for role in found.roles_statuses for r in role.replicas} == {0}


def test_resume_folder_that_the_user_of_the_image_cannot_write(scheduler: DockerScheduler) -> None:
    image = "torchx-test/other-user:1"
    subprocess.run(
        ["docker", "build", "-q", "-t", image, "-"],
        input=f"FROM {BUSYBOX}\nUSER 4711\n".encode(),
        check=True,
        capture_output=True,
    )
    app = shell("[ $TORCHX_ATTEMPT = 1 ] || exit 75", image=image, num_replicas=2)
    assert reasons(run(scheduler, app)) == ["requested", "succeeded"]
    found = run(scheduler, app, resume_dir="resume-${app_id}")
    assert found.state == AppState.FAILED
    folder = Path.cwd() / f"resume-{found.app_id}"
    assert f"cannot write to {folder}" in "".join(output(scheduler, found.app_id))


def with_shell(name: str, folder: Path, script: str) -> AppDef:
    """Return an app of two replicas whose ``sh`` is this shell."""
    shell_path = shutil.which(name)
    assert shell_path is not None
    shutil.copy(shell_path, folder / "sh")
    libraries = subprocess.run(["ldd", shell_path], check=True, capture_output=True, text=True)
    for path in re.findall(r"=> (\S+)", libraries.stdout):
        shutil.copy(path, folder)
    env = {"PATH": "/shell:/usr/bin:/bin", "LD_LIBRARY_PATH": "/shell"}
    mounts = [BindMount(str(folder), "/shell", read_only=True)]
    return shell(script, image=PYTHON, env=env, mounts=mounts, num_replicas=2)


def test_image_without_a_shell(scheduler: DockerScheduler) -> None:
    found = run(scheduler, shell("true", env={"PATH": "/nowhere"}), max_node_failures=0)
    assert found.state == AppState.FAILED
    assert found.roles_statuses[0].replicas[0].exit_code == 127
    assert "exec sh failed" in "".join(output(scheduler, found.app_id))


def test_image_without_a_command_that_the_script_needs(
    scheduler: DockerScheduler, tmp_path: Path
) -> None:
    app = with_shell("dash", tmp_path, "true")
    app.roles[0].env["PATH"] = "/shell"
    found = run(scheduler, app)
    assert found.state == AppState.FAILED
    assert "the image has no command '" in "".join(output(scheduler, found.app_id))


def test_delete_removes_the_record(scheduler: DockerScheduler) -> None:
    found = run(scheduler, shell("true"))
    api = scheduler._docker_client.api
    volumes = {"label": f"{LABEL_APP_ID}={found.app_id}"}
    assert len(api.volumes(filters=volumes)["Volumes"]) == 1
    scheduler.delete(found.app_id)
    assert not api.volumes(filters=volumes)["Volumes"]


def test_app_that_was_cancelled_starts_with_no_engine(scheduler: DockerScheduler) -> None:
    app_id = scheduler.submit(
        shell("trap '' TERM; echo ready; sleep 86400"), {"pull": "never", "requeue": True}
    )
    assert next(iter(scheduler.log_iter(app_id, "main", should_tail=True))) == "ready\n"
    scheduler.cancel(app_id)
    identity = container(scheduler, app_id, 0)["Id"]
    docker("start", identity)  # as an engine does with containers that failed
    docker("wait", identity)
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, reasons(found)) == (AppState.CANCELLED, ["cancelled"])


@pytest.mark.parametrize("name", ["dash", "bash"])
def test_shells_of_other_images(scheduler: DockerScheduler, name: str, tmp_path: Path) -> None:
    script = """
    case $TORCHX_ATTEMPT in
        0) exit 75 ;;
        1) kill -TERM $$ ;;
        2) trap '' TERM ;;
        3) exit ;;
    esac
    while :; do sleep 1; done
    """
    found = run(scheduler, with_shell(name, tmp_path, script), time="1s")
    assert reasons(found) == ["requested", "preempted", "time-limit", "succeeded"]
    lines = output(scheduler, found.app_id)
    assert lines == [f"--- attempt {number} ---" for number in (2, 3, 4)]


def test_owner_of_the_resume_folder_has_the_name_that_the_library_reads() -> None:
    assert contract.ENV_RESUME_OWNER == ENV_RESUME_OWNER
