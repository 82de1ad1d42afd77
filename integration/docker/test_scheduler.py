"""Tests of ``local_docker`` on a real engine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker_engine
import pytest
from docker_engine import BUSYBOX, PYTHON

from patience import PATIENCE, wait_for
from torchx_sched_docker.scheduler import (
    LABEL_APP_ID,
    DockerScheduler,
    create_scheduler,
    ensure_network,
    has_docker,
)
from torchx_specs import (
    AppDef,
    AppState,
    BindMount,
    DeviceMount,
    Resource,
    Role,
    VolumeMount,
    is_terminal,
    macros,
)
from torchx_specs.errors import BackendError
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.schedulers import DescribeAppResponse

Ended = Callable[[str], DescribeAppResponse]


# Values that expose quoting, splitting, expansion and decoding errors.
def shell(script: str, **role: Any) -> AppDef:
    """Return an app of one role that runs a shell script."""
    fields = {"name": "main", "image": BUSYBOX, **role}
    return AppDef("app", [Role(entrypoint="sh", args=["-c", script], **fields)])


def output(scheduler: DockerScheduler, app_id: str, k: int = 0, **options: Any) -> str:
    return "".join(scheduler.log_iter(app_id, "main", k, should_tail=True, **options))


def test_replicas_find_each_other_by_stable_names(
    scheduler: DockerScheduler, ended: Ended, tmp_path: Path
) -> None:
    fetch = f"wget -q -O- http://$${macros.rank0_env}:4000/passwd"
    seen = f"touch /seen/{macros.replica_id}"
    script = f"until {fetch} | grep root; do sleep 0.1; done; {seen}; hostname -i"
    listen = "httpd -p 4000 -h /etc; until [ -e /seen/0 -a -e /seen/1 ]; do sleep 0.1; done"
    mounts: list[Any] = [BindMount(str(tmp_path), "/seen")]
    app = AppDef(
        "_Two Roles!",
        [
            Role("a/b", BUSYBOX, entrypoint="sh", args=["-c", listen], mounts=mounts),
            shell(script, mounts=mounts, num_replicas=2).roles[0],
        ],
    )
    app_id = scheduler.submit(app, {})
    other = scheduler.submit(shell("sleep 1"), {})
    described = ended(app_id)
    assert described.state == AppState.SUCCEEDED, described
    assert [role.name for role in described.roles] == ["a/b", "main"]
    assert [role.num_replicas for role in described.roles] == [1, 2]
    addresses = {output(scheduler, app_id, k).split("\n")[-2] for k in (0, 1)}
    assert len(addresses) == 2
    networks = scheduler._docker_client.api.networks(filters={"label": LABEL_APP_ID})
    assert len({network["Id"] for network in networks}) == 2
    assert {a.app_id for a in scheduler.list()} == {app_id, other}


def test_container_gets_mounts_variables_and_limits_of_its_role(
    scheduler: DockerScheduler,
    ended: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "given").write_text("from the host")
    monkeypatch.setenv("COPIED_ONE", "1")
    monkeypatch.setenv("COPIED_TWO", "2")
    script = """
    cat /host/given; echo; touch /host/x 2>/dev/null || echo read-only
    echo kept > /volume/file; ls -l /dev/here | cut -c1; cat /dev/here | head -c3
    echo $COPIED_ONE $COPIED_TWO $GIVEN $ROLE
    df -k /dev/shm | tail -n1 | awk '{print $2}'
    cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; true
    """
    role = {
        "mounts": [
            BindMount(str(tmp_path), "/host", read_only=True),
            VolumeMount("torchx-test-volume", "/volume"),
            DeviceMount("/dev/null", "/dev/here", "rw"),
        ],
        "env": {"ROLE": "role", "COPIED_TWO": "replaced"},
        "resource": Resource(cpu=0.5, gpu=0, memMB=128),
    }
    cfg: dict[str, Any] = {"copy_env": ["COPIED_*"], "env": {"GIVEN": "g", "ROLE": "lost"}}
    try:
        app_id = scheduler.submit(shell(script, **role), cfg)
        assert ended(app_id).state == AppState.SUCCEEDED
        assert output(scheduler, app_id).split("\n")[:-1] == [
            "from the host",
            "read-only",
            "c",
            "1 replaced g role",
            str(128 * 1024),
            str(128 << 20),
        ]
        container = scheduler._container_id(app_id, "main", 0)
        inspected = scheduler._docker_client.api.inspect_container(container)
        assert inspected["HostConfig"]["NanoCpus"] == 500_000_000
    finally:
        for app in scheduler.list():
            scheduler.delete(app.app_id)
        scheduler._docker_client.api.remove_volume("torchx-test-volume")


def test_privileged_container_may_mount(scheduler: DockerScheduler, ended: Ended) -> None:
    script = "mkdir -p /mnt; mount -t tmpfs none /mnt"
    assert ended(scheduler.submit(shell(script), {})).state == AppState.FAILED
    try:
        privileged = scheduler.submit(shell(script), {"privileged": True})
    except BackendError as e:
        if "unable to apply caps" not in str(e):
            raise
        pytest.skip("this machine is a sandbox without all rights itself: privileged not tried")
    assert ended(privileged).state == AppState.SUCCEEDED


def fetched(url: str) -> bytes:
    """Return the content at a URL; empty if no server answers."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url) as reply:  # noqa: S310 - http
        return bytes(reply.read())
    return b""


def test_ports_answer_at_the_addresses_in_describe(scheduler: DockerScheduler) -> None:
    app = shell("httpd -f -p 80 -h /etc", port_map={"web": 80}, num_replicas=2)
    app_id = scheduler.submit(app, {})
    described = scheduler.describe(app_id)
    assert described is not None
    for k in (0, 1):
        host, port = described.metadata[f"port/main/{k}/80"].split(":")
        assert host == "127.0.0.1"
        url = f"http://{host}:{port}/passwd"
        assert wait_for(lambda url=url: fetched(url)).startswith(b"root")


def test_reason_names_the_memory_limit(scheduler: DockerScheduler, ended: Ended) -> None:
    app = shell("x=a; while true; do x=$x$x; done", resource=Resource(cpu=1, gpu=0, memMB=16))
    app_id = scheduler.submit(app, {})
    described = ended(app_id)
    # A busy engine does not always know that the kernel killed the program for its memory.
    reason = described.roles_statuses[0].replicas[0].reason
    assert reason in (
        "OOMKilled: over its limit of 16 MB",
        "exit code 137 (SIGKILL), perhaps because it was over its limit of 16 MB",
    )
    assert described.state == AppState.FAILED
    assert described.roles_statuses[0].replicas[0].exit_code == 137


@pytest.mark.parametrize(
    ("role", "message"),
    [
        ({"entrypoint": "no-such-program"}, "no-such-program"),
        ({"image": "torchx-test/none:1"}, "the engine has no image of that name"),
        ({"resource": Resource(cpu=4096, gpu=0, memMB=100)}, "CPUs"),
        ({"resource": Resource(cpu=1, gpu=1, memMB=100)}, "gpu"),
        ({"mounts": [BindMount("/no/such/folder", "/x")]}, "/no/such/folder"),
        ({"mounts": [DeviceMount("/dev/no-such", "/dev/x")]}, "/dev/no-such"),
    ],
)
def test_failed_submission_leaves_nothing(
    scheduler: DockerScheduler, role: dict[str, Any], message: str
) -> None:
    fields: dict[str, Any] = {"image": BUSYBOX, "entrypoint": "true", **role}
    app = AppDef("app", [Role("good", BUSYBOX, entrypoint="sleep", args=["60"], num_replicas=3)])
    app.roles[0].mounts += [VolumeMount("torchx-test-kept", "/a"), VolumeMount("torchx-new", "/b")]
    app.roles.append(Role("bad", **fields))
    api = scheduler._docker_client.api
    api.create_volume("torchx-test-kept")
    try:
        with pytest.raises(BackendError, match=message) as caught:
            # With an init process, the engine would not notice that the program is missing.
            scheduler.submit(app, {"init": False})
        assert "\n" not in str(caught.value)
        assert api.containers(all=True) == []
        assert api.networks(filters={"label": LABEL_APP_ID}) == []
        # A volume that existed before the submission stays.
        assert [volume["Name"] for volume in api.volumes()["Volumes"]] == ["torchx-test-kept"]
    finally:
        api.remove_volume("torchx-test-kept")


def test_every_client_sees_that_an_app_was_cancelled(scheduler: DockerScheduler) -> None:
    script = 'trap "echo bye; exit 0" TERM; echo ready; while true; do sleep 0.1; done'
    app_id = scheduler.submit(shell(script, num_replicas=3, max_retries=2), {})
    for k in range(3):
        assert next(iter(scheduler.log_iter(app_id, "main", k, should_tail=True))) == "ready\n"
    seen: list[AppState] = []
    done = threading.Event()

    def watch() -> None:
        other = create_scheduler("other")
        while not done.is_set():
            described = other.describe(app_id)
            assert described is not None
            seen.append(described.state)
        other.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    scheduler.cancel(app_id)
    done.set()
    watcher.join()
    assert set(seen) <= {AppState.RUNNING, AppState.CANCELLED}  # never FAILED or SUCCEEDED
    other = create_scheduler("other")
    described = other.describe(app_id)
    assert described is not None
    assert described.state == AppState.CANCELLED
    assert [r.state for r in described.roles_statuses[0].replicas] == [AppState.CANCELLED] * 3
    assert [app.state for app in other.list()] == [AppState.CANCELLED]
    assert output(other, app_id).endswith("bye\n")
    other.cancel(app_id)
    other.delete(app_id)
    assert other.describe(app_id) is None
    other.close()


@pytest.mark.parametrize("is_listed_first", [False, True])
def test_success_of_a_client_stops_the_servers_which_count_as_done(
    scheduler: DockerScheduler, ended: Ended, is_listed_first: bool
) -> None:
    server = shell("trap 'exit 3' TERM; while :; do sleep 0.1; done", num_replicas=2).roles[0]
    client = shell("true", metadata={ENDS_APP_KEY: True}).roles[0]
    server.name, client.name = "server", "client"
    app_id = scheduler.submit(AppDef("served", [server, client]), {})
    if is_listed_first:
        wait_for(lambda: [each.state for each in scheduler.list()] == [AppState.SUCCEEDED])
    found = ended(app_id)
    assert found.state == AppState.SUCCEEDED
    assert [{r.state for r in role.replicas} for role in found.roles_statuses] == [
        {AppState.SUCCEEDED},
        {AppState.SUCCEEDED},
    ]
    assert {r.hostname for r in found.roles_statuses[0].replicas} == {
        f"{app_id}-server-0",
        f"{app_id}-server-1",
    }
    assert [each.state for each in scheduler.list() if each.app_id == app_id] == [
        AppState.SUCCEEDED
    ]


def test_a_failure_of_a_server_before_the_success_of_its_client_counts(
    scheduler: DockerScheduler, ended: Ended, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    mounts = [BindMount(str(tmp_path), "/shared")]
    scripts = ("sleep 86400", "exit 3", "until [ -e /shared/go ]; do sleep 0.1; done")
    server, worker, client = (shell(s, mounts=mounts).roles[0] for s in scripts)
    server.name, worker.name, client.name = "server", "worker", "client"
    client.metadata[ENDS_APP_KEY] = True
    app_id = scheduler.submit(AppDef("served", [server, worker, client]), {})

    def has_failed() -> bool:
        described = scheduler.describe(app_id)
        return described is not None and described.msg.startswith("worker/0: exit code 3")

    wait_for(has_failed)
    (tmp_path / "go").touch()
    found = ended(app_id)
    assert found.state == AppState.FAILED
    assert "worker/0: exit code 3" in found.msg


@pytest.mark.parametrize(("init", "exit_code"), [(True, 143), (False, 137)])
def test_program_without_a_signal_handler_ends_at_sigterm_with_init(
    scheduler: DockerScheduler, init: bool, exit_code: int
) -> None:
    code = "import time; print('started', flush=True); time.sleep(600)"
    role = Role("r", PYTHON, entrypoint="python3", args=["-c", code])
    app_id = scheduler.submit(AppDef("app", [role]), {"pull": "never", "init": init})
    assert next(iter(scheduler.log_iter(app_id, "r", should_tail=True))) == "started\n"
    scheduler.cancel(app_id)
    (container,) = scheduler._docker_client.api.containers(
        all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"}
    )
    state = scheduler._docker_client.api.inspect_container(container["Id"])["State"]
    assert state["ExitCode"] == exit_code


@pytest.mark.parametrize("live_restore", [True, False])
def test_follower_survives_a_restart_of_the_daemon(
    live_restore: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    try:
        engine = docker_engine.start(folder, live_restore=live_restore)
        for name, value in engine.items():
            monkeypatch.setenv(name, value)
        scheduler = create_scheduler("test")
        loop = "until [ -e /gate/end ]; do echo line $i; i=$((i+1)); sleep 0.1; done"
        app = shell(f"i=0; {loop}; echo end", mounts=[BindMount(str(tmp_path), "/gate")])
        app_id = scheduler.submit(app, {"pull": "never"})
        lines: list[str] = []
        follower = threading.Thread(
            target=lambda: lines.extend(scheduler.log_iter(app_id, "main", should_tail=True))
        )
        follower.start()
        wait_for(lambda: len(lines) > 10)
        docker_engine.stop(folder)
        time.sleep(0.5)
        docker_engine.start(folder, live_restore=live_restore)
        if live_restore:
            before = len(lines)
            wait_for(lambda: len(lines) > before)
            (tmp_path / "end").touch()
        follower.join(PATIENCE)
        assert not follower.is_alive()
        if live_restore:
            assert lines.pop() == "end\n"
        assert lines == [f"line {i}\n" for i in range(len(lines))]
        if not live_restore:  # The daemon stopped the container.
            described = scheduler.describe(app_id)
            assert described is not None
            assert described.state == AppState.FAILED
        scheduler.delete(app_id)
        scheduler.close()
    finally:
        docker_engine.destroy(folder)


def test_networks_of_ended_apps_are_removed_if_addresses_run_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="torchx-docker-"))
    try:
        engine = docker_engine.start(folder, addresses="10.214.0.0/23")
        for name, value in engine.items():
            monkeypatch.setenv(name, value)
        scheduler = create_scheduler("test")
        ended = scheduler.submit(shell("true"), {"pull": "never"})
        while not is_terminal(scheduler.describe(ended).state):  # type: ignore[union-attr]
            scheduler.wait(ended, 10)
        for _ in range(2):
            scheduler.submit(shell("sleep 86400"), {"pull": "never"})
        with pytest.raises(BackendError, match="address pool"):
            scheduler.submit(shell("sleep 86400"), {"pull": "never"})
        assert scheduler.describe(ended) is not None
        assert len(scheduler.list()) == 3
        scheduler.close()
    finally:
        docker_engine.destroy(folder)


def test_has_docker_and_ensure_network(
    scheduler: DockerScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert has_docker()
    ensure_network()
    ensure_network(scheduler._docker_client)
    api = scheduler._docker_client.api
    assert [n["Name"] for n in api.networks(names=["torchx"])] == ["torchx"]
    api.remove_network("torchx")
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    assert not has_docker()
    with pytest.raises(BackendError, match="/no/such/socket"):
        create_scheduler("none").list()


def test_containers_of_upstream_are_listed_read_and_deleted(scheduler: DockerScheduler) -> None:
    client = scheduler._docker_client
    labels = {
        "torchx.pytorch.org/version": "0.7.0",
        LABEL_APP_ID: "old-app",
        "torchx.pytorch.org/role-name": "main",
        "torchx.pytorch.org/replica-id": "0",
    }
    subprocess.run(
        ["docker", "run", "-d", "--network", "none", "--name", "old-app-main-0"]
        + [argument for key, value in labels.items() for argument in ("--label", f"{key}={value}")]
        + [BUSYBOX, "sh", "-c", "echo old; exit 3"],
        env=dict(os.environ),
        check=True,
        capture_output=True,
    )
    client.containers.get("old-app-main-0").wait()
    assert [(app.app_id, app.state) for app in scheduler.list()] == [("old-app", AppState.FAILED)]
    assert output(scheduler, "old-app") == "old\n"
    scheduler.delete("old-app")
