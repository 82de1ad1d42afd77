"""Tests of commands inside jobs: keys, the terminal's size, its restoration, ports, files.

The tests run with local processes, with containers, and with steps of Slurm jobs.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backends import Backend
from terminal import Terminal

from patience import PATIENCE, wait_for

# Runs a web server. The image busybox has httpd and no Python; the hosts of Slurm have Python and
# no httpd.
SERVE = (
    "echo served > page.txt; for p in python3 python; do command -v $p > /dev/null &&"
    " exec $p -m http.server --bind 0.0.0.0 %d; done; exec httpd -f -p %d -h ."
)


class Keyboard(Terminal):
    """A terminal whose keys a test presses."""

    def press(self, keys: bytes) -> None:
        """Write keys to the terminal."""
        os.write(self._main, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal, and send SIGWINCH as a terminal emulator does."""
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def modes(self) -> list[Any]:
        """Return the modes of the terminal."""
        return termios.tcgetattr(self._main)

    def read_for(self, seconds: float) -> None:
        """Read whatever arrives until nothing has arrived for some seconds."""
        while self._read(seconds):
            pass


@pytest.fixture
def submit(backend: Backend, command: Any, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Return a function that submits a script, and waits until commands can run in its job."""
    handles = []

    def start(script: str) -> str:
        image = ["--image", backend.image] if backend.image else []
        words = backend.run_words("utils.sh", *image, "--", "sh", "-c", script)
        done = command(*words)
        assert done.returncode == 0, done.stderr
        handles.append(str(done.stdout.strip()))
        wait_for(lambda: command("exec", handles[-1], "--", "true").returncode == 0)
        return handles[-1]

    yield start
    for handle in handles:
        assert command("delete", handle).returncode == 0


@pytest.fixture
def handle(submit: Callable[[str], str]) -> str:
    """Return the handle of a job that runs."""
    return submit("sleep 86400")


@pytest.fixture
def type_in(command: Any, environment: dict[str, str], tmp_path: Path) -> Callable[..., Keyboard]:
    """Return a function that starts ``torchx`` with arguments on a terminal."""

    def start(*words: str) -> Keyboard:
        line = [str(Path(sys.prefix) / "bin" / "torchx"), *words]
        variables = {**environment, "TERM": "xterm", "SHELL": "/bin/sh", "PS1": "prompt> "}
        return Keyboard(line, variables, str(tmp_path))

    return start


def test_a_user_works_in_a_shell(handle: str, type_in: Callable[..., Keyboard]) -> None:
    with type_in("shell", handle) as screen:
        screen.expect("# " if os.geteuid() == 0 else "$ ")
        screen.press(b"stty size; echo $TORCHX_JOB_ID\r")
        screen.expect("40 120\n")
        assert screen.shown.count("stty size") == 1  # echoed once, by the terminal of the job
        screen.resize(77, 22)
        screen.read_for(0.5)
        screen.press(b"stty size\r")
        screen.expect("22 77\n")
        screen.press(b"sleep 86400; echo code=$?\r")
        screen.read_for(0.5)
        screen.press(b"\x03")
        screen.press(b"echo after-$((1 + 1))-key\r")
        screen.expect("after-2-key\n")
        screen.press(b"exit 6\r")
        assert screen.finish() == 6


def test_the_terminal_is_restored(handle: str, type_in: Callable[..., Keyboard]) -> None:
    def start(*words: str) -> Keyboard:
        return type_in("exec", "-it", handle, "--", *words)

    with start("sh", "-c", "echo ready; exec sleep 86400") as screen:
        before = screen.modes()
        screen.expect("ready")
        assert screen.modes() != before
        screen.press(b"\x03")
        assert screen.finish() == 130
        assert screen.modes() == before
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 143)):
        with start("sh", "-c", "echo ready; exec sleep 86400") as screen:
            before = screen.modes()
            screen.expect("ready")
            screen.process.send_signal(number)
            assert screen.finish() == code
            assert screen.modes() == before
    with start("/no/such/program") as screen:
        assert screen.finish() == 127
        assert re.search(r"cannot run '/no/such/program'", screen.shown)


def test_a_program_gets_the_end_of_input_and_binary_keys(
    handle: str, type_in: Callable[..., Keyboard]
) -> None:
    with type_in("exec", "-it", handle, "--", "sh", "-c", "echo ready; exec cat -v") as screen:
        screen.expect("ready")
        screen.press(b"\x16\x01\x16\xff\r\x04")
        assert screen.finish() == 0
    assert "^A" in screen.shown
    assert "M-^?" in screen.shown


def test_ports_are_forwarded_until_ctrl_c(
    submit: Callable[[str], str], type_in: Callable[..., Keyboard]
) -> None:
    with socket.socket() as found:
        found.bind(("", 0))
        port = found.getsockname()[1]
    handle = submit(SERVE % (port, port))
    with type_in("forward", handle, f"0:{port}") as screen:
        before = screen.modes()
        screen.expect(" -> ")
        screen.expect(f":{port}\n")
        local = re.search(r"127\.0\.0\.1:(\d+) -> ", screen.shown)
        assert local is not None
        page = f"http://127.0.0.1:{local[1]}/page.txt"

        def served() -> bytes | None:
            try:
                with urllib.request.urlopen(page, timeout=PATIENCE) as answer:
                    return bytes(answer.read())
            except OSError:  # the server in the job has not started yet
                return screen.read_for(0.2)

        assert wait_for(served) == b"served\n"
        with type_in("forward", handle, f"{local[1]}:{port}") as other:
            assert other.finish() == 2
            assert "Address already in use; choose another local port" in other.shown
            assert other.shown.count("\n") == 1
        screen.press(b"\x03")
        assert screen.finish() == 130
        assert screen.modes() == before
        assert "Traceback" not in screen.shown


def test_exit_codes_and_signals_of_programs(handle: str, type_in: Callable[..., Keyboard]) -> None:
    for script, code in (("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", 143)):
        with type_in("exec", "-it", handle, "--", "sh", "-c", script) as screen:
            assert screen.finish() == code, screen.shown


def test_help_imports_no_back_end(environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from torchx_cli.main import execute\n"
        "for name in ('exec', 'shell', 'forward', 'cp'):\n"
        "    assert execute([name, '--help']) == 0\n"
        "names = ('torchx_sched', 'docker.', 'kubernetes', 'boto', 'torchx_kit', 'tarfile')\n"
        "found = [name for name in sys.modules if name.startswith(names) and '.' in name]\n"
        "print([n for n in found if not n.endswith('.plugin')], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "[]\n"
