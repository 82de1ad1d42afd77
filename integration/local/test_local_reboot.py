"""Apps with the option ``requeue`` go on after the machine restarted, on ``local_cwd``.

A machine is a process namespace with a boot id of its own: its end kills all processes at once, and
the next one has other processes with the same ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import resilient_loop

from patience import wait_for

BIN = Path(sys.prefix) / "bin"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
pytestmark = pytest.mark.gate


class Machine:
    """A machine that runs until the end of a context.

    Args:
        folder: The working directory of its commands.
        environment: Their environment.
        boot: Its boot id.
    """

    def __init__(self, folder: Path, environment: dict[str, str], boot: str) -> None:
        self.folder = folder
        self.environment = environment
        self.boot = folder / f"boot-{boot}"
        self.boot.write_text(f"{boot}\n")
        self._root = [] if os.getuid() == 0 else ["--map-root-user"]
        self._init = 0

    def start(self) -> subprocess.Popen[str]:
        """Start the machine, and return the process with which it ends."""
        options = [*self._root, "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        script = 'mount --bind "$0" "$1" && echo ready && exec sleep infinity'
        command = ["unshare", *options, "sh", "-c", script, str(self.boot), BOOT_ID]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        (child,) = psutil.Process(process.pid).children()
        self._init = child.pid
        return process

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        """Start ``torchx`` on the machine."""
        user = ["--user", "--preserve-credentials"] if self._root else []
        enter = ["nsenter", *user, "--mount", "--pid", "--target", str(self._init), "--"]
        command = [str(BIN / "torchx"), *arguments]
        return subprocess.Popen(
            [*enter, "sh", "-c", 'cd "$0" && exec "$@"', str(self.folder), *command],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def torchx(self, *arguments: str) -> str:
        """Run ``torchx`` on the machine, and return what it writes."""
        with self.popen(*arguments) as process:
            out, error = process.communicate(timeout=300)
        assert process.returncode == 0, error
        return out

    def attempts(self, handle: str) -> list[str | None]:
        """Return why each attempt of an app ended."""
        status = json.loads(self.torchx("status", "--json", handle))
        return [attempt["reason"] for attempt in status["attempts"]]


@contextlib.contextmanager
def booted(folder: Path, environment: dict[str, str], boot: str) -> Iterator[Machine]:
    """Return a context with a machine."""
    machine = Machine(folder, environment, boot)
    process = machine.start()
    try:
        yield machine
    finally:
        init = psutil.Process(machine._init)
        process.kill()
        process.communicate()
        psutil.wait_procs([init], timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def loop(folder: Path) -> list[str]:
    return [resilient_loop.__file__, str(folder), "outside"]


@pytest.fixture
def handle(folder: Path, environment: dict[str, str], request: Any) -> str:
    """Return an app that ran, at the fault of its loop, when the machine restarted."""
    options = getattr(request, "param", [])
    with booted(folder, environment, "first") as machine:
        command = ["run", "-s", "local_cwd", "-cfg", "detach=True", "--workspace="]
        command += ["--resume_dir", "resume", "--replicas", "2", *options]
        handle = machine.torchx(*command, "--", sys.executable, *loop(folder)).strip()
        pids = [folder / f"pid-{rank}" for rank in range(2)]
        wait_for(lambda: all(path.exists() for path in pids))
    (folder / "go").touch()
    return handle


def test_weights_are_those_of_the_undisturbed_run(
    folder: Path, environment: dict[str, str], handle: str
) -> None:
    with booted(folder, environment, "second") as machine:
        # several commands see at the same time that it must start again
        readers = [machine.popen("status", "--json", handle) for _ in range(3)]
        for reader in readers:
            out, error = reader.communicate(timeout=300)
            assert reader.returncode == 0, error
            assert json.loads(out)["state"] in ("RUNNING", "SUCCEEDED")
        machine.torchx("wait", handle)
        assert machine.attempts(handle) == ["node-failure", "succeeded"]
    assert resilient_loop.check(folder, 2) == ["none", "node-failure"]


def test_cancel_is_the_end(folder: Path, environment: dict[str, str], handle: str) -> None:
    with booted(folder, environment, "second") as machine:
        machine.torchx("cancel", handle)
        status = json.loads(machine.torchx("status", "--json", handle))
        assert status["state"] == "CANCELLED"
        commands = [process.info["cmdline"] for process in psutil.process_iter(["cmdline"])]
        assert not [one for one in commands if one and one[1:3] == loop(folder)[:2]]


@pytest.mark.parametrize("handle", [["--max_node_failures", "0"]], indirect=True)
def test_budget_of_node_failures_ends_the_app(
    folder: Path, environment: dict[str, str], handle: str
) -> None:
    with booted(folder, environment, "second") as machine:
        status = json.loads(machine.torchx("status", "--json", handle))
        assert status["state"] == "FAILED"
        assert "too many node failures (option max_node_failures)" in status["msg"]
        assert machine.attempts(handle) == ["node-failure"]
