"""Faults of a cluster behind SSH: each is one line that names the machine, or does no harm."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sshd as service
from ssh_proxy import Proxy

from patience import wait_for
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.errors import HostUnreachableError
from torchx_kit.hosts.lookup import find_host
from torchx_runner import get_runner
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_specs import AppDef, AppState, Role, Workspace
from torchx_specs.errors import BackendError, TorchXError
from torchx_specs.schedulers import Scheduler
from torchx_sweep import api as sweep

Torchx = Callable[..., "subprocess.CompletedProcess[str]"]
#: Returns a scheduler on a machine with the user of ``bash``, after changes to its mounts.
Mounted = Callable[[str], Scheduler[Any]]


@pytest.fixture
def mounted(work: Path, machines: Path, alias: Callable[..., str]) -> Iterator[Mounted]:
    """Return a function that makes a machine whose server runs in mounts of its own."""
    names: list[str] = []

    def make(script: str) -> Scheduler[Any]:
        home = service.home_of(machines, "bash")
        server = machines / f"server-{len(names)}"
        server.write_text(
            f"#!/bin/sh\nset -e\ncd {home}\n{script}\n"
            f"exec /usr/sbin/sshd -i -f {machines}/sshd-bash.conf\n"
        )
        command = f"unshare --mount --propagation private sh {server}"
        names.append(alias(HostName=f"mounted{len(names)}", ProxyCommand=command))
        return InstalledSchedulers()[f"slurm@{names[-1]}"]("test")

    yield make
    for name in names:
        find_host(name).close()  # type: ignore[attr-defined]
        SshHost(name).ssh.disconnect()


def held(workspace: str = "") -> tuple[AppDef, dict[str, Any]]:
    role = Role("sh", image="", entrypoint="true")
    role.workspace = Workspace({workspace: ""}) if workspace else None
    return AppDef("app", [role]), {"extra": ["hold"]}


def queue() -> str:
    return find_host("bash").run(["squeue", "-h", "-u", find_host("bash").user()]).stdout


@pytest.mark.parametrize(
    ("folder", "mount", "message"),
    [
        (".torchx-slurm", "-t tmpfs -o size=4k tmpfs", "No space left on device"),
        (".torchx-slurm", "-t tmpfs -o ro tmpfs", "Read-only file system"),
        (".torchx/workspaces", "-t tmpfs -o size=4k tmpfs", "No space left on device"),
        (".torchx/workspaces", "-t tmpfs -o ro tmpfs", "Read-only file system"),
    ],
)
def test_a_full_or_read_only_disk_is_one_line_and_no_job(
    mounted: Mounted, work: Path, folder: str, mount: str, message: str
) -> None:
    (work / "large.txt").write_text("x" * 100_000)
    before = queue()
    scheduler = mounted(
        f"mkdir -p {folder}; chown --reference . .torchx* {folder}\n"
        f"mount {mount} {folder}; chown --reference . {folder} || true"
    )
    with pytest.raises(TorchXError, match=message) as caught:
        scheduler.submit(*held(str(work)))
    assert "\n" not in str(caught.value)
    assert folder in str(caught.value)
    assert queue() == before
    scheduler.close()


def test_programs_may_not_be_executed_in_tmp(mounted: Mounted, work: Path) -> None:
    (work / "program.py").write_text("# program")
    scheduler = mounted("mount --bind /tmp /tmp; mount -o remount,bind,noexec /tmp")
    app_id = scheduler.submit(*held(str(work)))
    assert scheduler.describe(app_id).state == AppState.PENDING  # type: ignore[union-attr]
    scheduler.cancel(app_id)
    scheduler.close()


@pytest.mark.parametrize(
    ("hidden", "message"),
    [("sbatch", "there is no command sbatch on PATH"), ("python3*", "has no command python3")],
)
def test_a_missing_program_is_named(mounted: Mounted, hidden: str, message: str) -> None:
    # The user finds only links to the other programs.
    scheduler = mounted(
        "mkdir -p programs; ln -sf /usr/bin/* programs; rm -f programs/" + hidden + "\n"
        "echo 'export PATH=$HOME/programs' > bashrc; mount --bind bashrc .bashrc"
    )
    with pytest.raises(BackendError, match=message):
        scheduler.submit(*held())
    scheduler.close()


def test_a_server_without_forwarding_and_files_but_with_a_banner(
    machines: Path, work: Path, cluster: Path
) -> None:
    banner = machines / "banner"
    banner.write_text("Authorized users only.\nAll connections are logged.\n")
    settings = f"AllowTcpForwarding no\nDisableForwarding yes\nBanner {banner}\nMaxSessions 2\n"
    service.add_machine(machines, "strict", settings=settings)
    host = SshHost("strict")
    assert host.run(["echo", "connected"]).stdout == "connected\n"
    argv = host.attached_command(["printf", "%s", "a b"], tty=False)
    assert subprocess.run(argv, capture_output=True, check=True).stdout == b"a b"
    host.close()
    host.ssh.disconnect()


def test_a_server_with_too_many_connections_is_tried_again(
    machines: Path, work: Path, connect: Callable[[str], SshHost]
) -> None:
    service.add_machine(machines, "busy", settings="MaxStartups 1:100:1\n")
    other = socket.create_connection(("127.0.0.1", service.port_of(machines, "busy")))
    other.recv(100)  # the server waits for this client
    with pytest.raises(HostUnreachableError, match="cannot connect to busy"):
        connect("busy").user()
    other.close()
    wait_for(lambda: _answers(connect("busy")))


def _answers(host: SshHost) -> bool:
    try:
        return bool(host.user())
    except HostUnreachableError:
        return False


@pytest.fixture
def laptop(work: Path, environment: dict[str, str]) -> Torchx:
    """Return a function that runs ``torchx``; ``home`` is another TORCHX_HOME."""

    def call(*arguments: str, home: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [f"{Path(sys.executable).parent}/torchx", *arguments],
            env={**environment, "TORCHX_HOME": home or os.environ["TORCHX_HOME"]},
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


def test_a_host_that_does_not_answer_hides_no_other_host(
    laptop: Torchx, proxy: Callable[..., Proxy], alias: Callable[..., str]
) -> None:
    way = proxy()
    name = alias(Port=way.port)
    run = ("run", "-cfg", "extra=hold", "--workspace=", "-s")
    handles = [
        laptop(*run, f"slurm@{host}", "utils.sh", "true").stdout.strip() for host in ("bash", name)
    ]
    way.close()
    silent = socket.create_server(("127.0.0.1", way.port))
    SshHost(name).ssh.disconnect()
    done = laptop("list", "--timeout", "8")
    assert done.returncode == 0, done.stderr
    assert handles[0] in done.stdout
    assert f"slurm@{name}: no answer within 8 s" in done.stderr
    shown = laptop("history").stdout
    assert all(handle in shown for handle in handles)
    silent.close()
    laptop("cancel", handles[0])


def test_a_second_laptop_finds_the_jobs(laptop: Torchx, tmp_path: Path) -> None:
    run = (
        "run",
        "-s",
        "slurm@bash",
        "--workspace=",
        "--wait",
        "utils.sh",
        "echo",
        "from the first",
    )
    handle = laptop(*run).stdout.strip()
    second = str(tmp_path / "second")
    assert "SUCCEEDED" in laptop("status", handle, home=second).stdout
    assert "from the first" in laptop("log", handle, home=second).stdout
    assert handle in laptop("list", "-s", "slurm@bash", home=second).stdout


def test_a_log_is_followed_after_the_laptop_was_asleep(
    connect: Callable[[str], SshHost], alias: Callable[..., str], proxy: Callable[..., Proxy]
) -> None:
    way = proxy()
    writer, reader = connect("bash"), connect(alias(Port=way.port))
    path = writer.resolve("asleep.log")
    writer.write(path, "before\n")
    lines = reader.follow([path], lambda: writer.exists(f"{path}.end"), check_every=0.2)
    assert next(lines) == "before\n"
    way.silence()  # ssh notices it after three unanswered questions
    writer.run(["sh", "-c", 'printf "asleep\nafter\n" >> "$1"; touch "$1.end"', "sh", path])
    assert list(lines) == ["asleep\n", "after\n"]


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off_matters_to_no_state(
    work: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
    (work / "program.py").write_text("print('ran')\n")
    scheduler = InstalledSchedulers()["slurm@bash"]("test")
    role = Role("sh", image="", entrypoint="python3", args=["program.py"])
    role.workspace = Workspace({str(work): ""})
    app_id = scheduler.submit(AppDef("app", [role]), {})
    assert app_id in {app.app_id for app in scheduler.list()}
    wait_for(lambda: scheduler.describe(app_id).state == AppState.SUCCEEDED)  # type: ignore[union-attr]
    assert list(scheduler.log_iter(app_id, "sh")) == ["ran\n"]
    scheduler.close()


def test_a_sweep_pauses_while_a_new_connection_needs_an_answer(
    laptop: Torchx,
    work: Path,
    machines: Path,
    proxy: Callable[..., Proxy],
    alias: Callable[..., str],
) -> None:
    way = proxy()
    name = alias(Port=way.port)
    folder = find_host("bash").resolve("~/ran")
    find_host("bash").make_dirs(folder)
    code = f"touch {folder}/$SLURM_JOB_ID; while [ ! -e {folder}/go ]; do sleep 0.1; done"
    with get_runner() as runner:
        handle = sweep.sweep(
            runner,
            "utils.sh",
            ["sh", "-c", code],
            f"slurm@{name}",
            # Apps of two replicas are submitted one by one, and not as an array.
            grid={"num_replicas": [2], "max_retries": [0, 1, 2]},
            max_parallel=1,
        )
        wait_for(lambda: find_host("bash").list(folder))
        keys = machines / "authorized_keys"
        keys.rename(machines / "other_keys")  # as if the server wanted another factor
        try:
            way.cut()
            find_host("bash").write(f"{folder}/go", "")
            wait_for(lambda: "Permission denied" in sweep.status(handle).note)
            shown = laptop("sweep", "status", handle).stdout
            assert f"cannot connect to {name}" in shown
            assert sweep.status(handle).state == AppState.RUNNING
        finally:
            (machines / "other_keys").rename(keys)
        wait_for(lambda: sweep.status(handle).state == AppState.SUCCEEDED)
    assert len(find_host("bash").list(folder)) == 4  # each element ran once


def test_a_second_factor_is_asked_on_the_terminal(
    machines: Path, work: Path, cluster: Path
) -> None:
    settings = (
        "UsePAM yes\nKbdInteractiveAuthentication yes\n"
        "AuthenticationMethods publickey,keyboard-interactive\n"
    )
    service.add_machine(machines, "factor", settings="")
    config = machines / "sshd-factor.conf"
    text = config.read_text().replace("UsePAM no\n", "")
    config.write_text(text.replace("KbdInteractiveAuthentication no\n", "") + settings)
    service.stop_server(machines, "factor")
    service.start_server(machines, "factor")
    user = service.user_of(machines, "factor")
    subprocess.run(["chpasswd"], input=f"{user}:code 17", text=True, check=True)
    with pytest.raises(BackendError, match="Permission denied"):
        _without_terminal("factor")
    program = (
        "import sys; from torchx_host_ssh.host import SshHost\n"
        "host = SshHost('factor'); print(host.run(['echo', 'connected']).stdout)\n"
        "host.close(); host = SshHost('factor'); print(host.run(['echo', 'again']).stdout)\n"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", program])  # noqa: S606
    shown = b""
    while b"assword:" not in shown:
        shown += os.read(terminal, 1000)
    os.write(terminal, b"code 17\n")
    while b"again" not in shown:
        shown += os.read(terminal, 1000)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)
    assert shown.count(b"assword:") == 1
    assert b"code 17" not in shown
    _without_terminal("factor")  # the shared connection is open
    SshHost("factor").ssh.disconnect()


def _without_terminal(name: str) -> None:
    code = f"from torchx_host_ssh.host import SshHost; SshHost({name!r}).user()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    if done.returncode:
        raise BackendError(done.stderr)
