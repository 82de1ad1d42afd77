"""Tests of how processes are identified, found and signalled, and of which modules are loaded."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from local_helpers import is_running, read_pids

from patience import wait_for
from torchx_sched_local.supervise.processes import process_table, replica_processes
from torchx_sched_local.supervise.processes.process_table import ENV_REPLICA
from torchx_sched_local.supervise.processes.replica_processes import (
    Leader,
    ProcessId,
    terminate_all,
)
from torchx_specs.errors import BackendError

pytestmark = pytest.mark.skipif(not process_table.IS_LINUX, reason="reads /proc")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ["sleep", "5555"], start_new_session=True, env={**os.environ, ENV_REPLICA: "app/0/0"}
    )
    yield process
    process.kill()
    process.wait()


def nobody(pid: int) -> bool:
    return False


def token_mark(token: str) -> Callable[[int], bool]:
    return lambda pid: token in process_table.read_tokens(pid)


def test_ended_process_is_not_alive(sleeper: subprocess.Popen[bytes]) -> None:
    process = replica_processes.identify(sleeper.pid)
    assert process.start > 0
    assert replica_processes.is_alive(process)
    assert replica_processes.send_signal(process, 0)
    sleeper.kill()
    wait_for(lambda: process_table.process_info(sleeper.pid).state == "Z")
    assert not replica_processes.is_alive(process)
    sleeper.wait()
    assert not replica_processes.is_alive(process)
    assert not replica_processes.send_signal(process, signal.SIGKILL)
    assert replica_processes.identify(2**22 + 1) == ProcessId(2**22 + 1, 0)


@pytest.mark.parametrize("pidfd", [True, False])
def test_process_with_a_reused_pid_is_never_signalled(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, pidfd: bool
) -> None:
    if not pidfd:
        monkeypatch.setattr(replica_processes, "open_pidfd", lambda pid: None)
    real = replica_processes.identify(sleeper.pid)
    for start in (real.start - 1, real.start + 1, 0):
        assert not replica_processes.send_signal(ProcessId(real.pid, start), signal.SIGKILL)
        leader = Leader(ProcessId(real.pid, start), reaped=real.start)
        assert replica_processes.find_processes([leader], nobody, 0) == set()
    time.sleep(0.05)
    assert sleeper.poll() is None
    assert replica_processes.send_signal(real, signal.SIGKILL)
    assert sleeper.wait(120) == -signal.SIGKILL


@pytest.mark.parametrize("pid", [0, 1])
@pytest.mark.parametrize("start", [0, 1, 40])
def test_processes_of_the_kernel_and_init_are_never_found(
    monkeypatch: pytest.MonkeyPatch, pid: int, start: int
) -> None:
    # A process that entered a container from outside has session 0, like the kernel.
    table = {
        1: process_table.ProcessInfo(1, 0, 0, "S"),
        2: process_table.ProcessInfo(1, 0, 0, "S"),
        77: process_table.ProcessInfo(50, 1, 0, "S"),
        78: process_table.ProcessInfo(50, 1, 78, "S"),
        79: process_table.ProcessInfo(50, 1, 1, "S"),
    }
    monkeypatch.setattr(process_table, "all_processes", lambda: table)
    monkeypatch.setattr(process_table, "read_tokens", lambda pid: [])
    leader = Leader(ProcessId(pid, start), reaped=100)
    assert replica_processes.find_processes([leader], nobody, 0) == set()
    assert not replica_processes.send_signal(ProcessId(pid, start), 0)


def test_processes_older_than_the_app_are_never_found(monkeypatch: pytest.MonkeyPatch) -> None:
    me = os.getpid()
    table = {
        50: process_table.ProcessInfo(60, 1, 50, "S"),
        51: process_table.ProcessInfo(30, 50, 50, "S"),
        52: process_table.ProcessInfo(61, 50, 50, "S"),
        53: process_table.ProcessInfo(30, 1, 53, "S"),
        me: process_table.ProcessInfo(61, 50, 50, "S"),
    }
    monkeypatch.setattr(process_table, "all_processes", lambda: table)
    monkeypatch.setattr(process_table, "read_tokens", lambda pid: ["t"] if pid == 53 else [])
    found = replica_processes.find_processes([Leader(ProcessId(50, 60))], token_mark("t"), 40)
    assert {process.pid for process in found} == {50, 52}


def test_app_without_a_known_start_has_the_processes_of_its_records(
    sleeper: subprocess.Popen[bytes],
) -> None:
    from torchx_sched_local.store.app_folder import rebuilt_app
    from torchx_sched_local.store.app_run import AppRun

    begun = replica_processes.identify(sleeper.pid).start
    for start, found in ((begun, {ProcessId(sleeper.pid, begun)}), (begun + 1, set())):
        run = AppRun(rebuilt_app("another-app", {"main": 1}))
        run.apply(["start", 0, 0, sleeper.pid, start, 1.0])
        assert run.find_processes() == found


def test_program_names_may_contain_parentheses_and_spaces(tmp_path: Path) -> None:
    program = tmp_path / ") 0 R (x"
    shutil.copy(shutil.which("sleep") or "", program)
    process = subprocess.Popen([str(program), "5555"])
    try:
        seen = wait_for(lambda: process_table.process_info(process.pid))
        assert seen.parent == os.getpid()
        assert replica_processes.is_alive(replica_processes.identify(process.pid))
    finally:
        process.kill()
        process.wait()


def test_tokens_are_read_from_the_environment(sleeper: subprocess.Popen[bytes]) -> None:
    assert wait_for(lambda: process_table.read_tokens(sleeper.pid)) == ["app/0/0"]
    assert process_table.read_tokens(1 if os.geteuid() else 2) == []
    assert process_table.with_token({}, "a") == "a"
    assert process_table.with_token({ENV_REPLICA: "a\nb"}, "c") == "a\nb\nc"


def test_token_is_read_wherever_it_is_in_the_environment() -> None:
    for env in ({ENV_REPLICA: "t", "Z": "1"}, {"A": "1", ENV_REPLICA: "t"}, {ENV_REPLICA: "t"}):
        process = subprocess.Popen(["/bin/sleep", "5555"], env=env)
        try:
            assert wait_for(lambda: process_table.read_tokens(process.pid)) == ["t"]  # noqa: B023
        finally:
            process.kill()
            process.wait()
    assert process_table.read_tokens(os.getpid()) == [] or ENV_REPLICA in os.environ


def test_a_process_in_the_midst_of_execve_has_its_token() -> None:
    again = 'exec sh -c "$1" sh "$1"'
    env = {**os.environ, ENV_REPLICA: "app/0/0"}
    process = subprocess.Popen(["sh", "-c", again, "sh", again], env=env)
    try:
        wait_for(lambda: process_table.read_tokens(process.pid))
        found = {tuple(process_table.read_tokens(process.pid)) for _ in range(20_000)}
    finally:
        process.kill()
        process.wait()
    assert found == {("app/0/0",)}


def test_session_of_an_ended_leader_is_found(tmp_path: Path) -> None:
    leader = subprocess.Popen(
        ["sh", "-c", f"sleep 5555 & echo $! > {tmp_path}/pid"], start_new_session=True, env={}
    )
    identity = replica_processes.identify(leader.pid)
    [pid] = read_pids(tmp_path / "pid")
    leader.wait()
    reaped = process_table.now() + 1
    try:
        found = replica_processes.find_processes([Leader(identity, reaped)], nobody, 0)
        assert {process.pid for process in found} == {pid}
        # If all members of a session started after the leader's end, the session's id was reused.
        assert (
            replica_processes.find_processes([Leader(identity, identity.start - 1)], nobody, 0)
            == set()
        )
    finally:
        os.kill(pid, signal.SIGKILL)


def test_terminate_all_ends_processes_that_start_meanwhile(tmp_path: Path) -> None:
    script = f"""
    trap 'setsid sh -c "echo \\$\\$ > {tmp_path}/late; exec sleep 5555" & sleep 0.2; exit' TERM
    echo $$ > {tmp_path}/pid
    while :; do sleep 0.01; done
    """
    leader = subprocess.Popen(
        ["sh", "-c", script], start_new_session=True, env={**os.environ, ENV_REPLICA: "t"}
    )
    read_pids(tmp_path / "pid")
    identity = replica_processes.identify(leader.pid)
    terminate_all(
        lambda: replica_processes.find_processes([Leader(identity)], token_mark("t"), 0),
        grace=5,
    )
    leader.wait(120)
    [late] = read_pids(tmp_path / "late")
    assert not is_running(late)


def test_processes_are_found_by_psutil_where_there_is_no_proc(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("psutil")
    wait_for(lambda: process_table.read_tokens(sleeper.pid))
    monkeypatch.setattr(process_table, "IS_LINUX", False)
    identity = replica_processes.identify(sleeper.pid)
    assert abs(identity.start - process_table.now()) < 60 * os.sysconf("SC_CLK_TCK")
    assert replica_processes.is_alive(identity)
    assert not replica_processes.is_alive(ProcessId(sleeper.pid, identity.start - 1))
    me = process_table.process_info(os.getpid())
    assert me is not None
    assert (me.parent, me.session) == (os.getppid(), os.getsid(0))
    assert process_table.process_info(2**22 + 1) is None
    assert process_table.read_tokens(sleeper.pid) == ["app/0/0"]
    assert process_table.read_tokens(2**22 + 1) == []
    assert sleeper.pid in process_table.all_processes()
    by_leader = replica_processes.find_processes([Leader(identity)], nobody, 0)
    by_token = replica_processes.find_processes([], token_mark("app/0/0"), 0)
    assert by_leader == by_token == {identity}
    sleeper.kill()
    wait_for(lambda: not replica_processes.is_alive(identity))
    sleeper.wait()
    assert process_table.process_info(sleeper.pid) is None


def printed_by(code: str) -> list[str]:
    """Run Python code in another process, and return the words that the code prints."""
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return out.stdout.split()


def test_plugin_loads_no_slow_module() -> None:
    code = (
        "import sys; before = set(sys.modules); import torchx_sched_local.plugin;"
        " print(*sorted(set(sys.modules) - before))"
    )
    heavy = {"pluggy", "subprocess", "logging", "asyncio", "pathlib", "json", "ctypes"}
    assert heavy.isdisjoint(printed_by(code))


def test_dry_run_loads_no_module_for_running() -> None:
    code = """
import sys
from torchx_sched_local.scheduler import create_scheduler
from torchx_specs import AppDef, Role
create_scheduler("s").submit_dryrun(AppDef("a", [Role("r", image="", entrypoint="x")]), {})
print(*sys.modules)
"""
    heavy = {"subprocess", "logging", "asyncio", "json", "ctypes", "selectors", "shutil"}
    assert heavy.isdisjoint(printed_by(code))


def test_environment_of_a_session_has_no_odd_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchx_sched_local import sessions

    monkeypatch.setattr(process_table, "read_environ", lambda _: b"A=1\0B=x=y\0odd\0=no name\0")
    assert sessions._read_environ(ProcessId(7, 1), "main", 0) == {"A": "1", "B": "x=y"}


def test_session_without_a_free_descriptor_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchx_sched_local import sessions

    def read_environ(pid: int) -> bytes:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(process_table, "read_environ", read_environ)
    message = r"^cannot read the environment of main/0 \(process 7\): Too many open files$"
    with pytest.raises(BackendError, match=message):
        sessions._read_environ(ProcessId(7, 1), "main", 0)
