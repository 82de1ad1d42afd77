"""Tests of ``torchx exec``, ``shell``, ``cp`` and ``forward``, to inherit for each scheduler."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from patience import wait_for

TORCHX = str(Path(sys.prefix) / "bin" / "torchx")
Call = Callable[..., "subprocess.CompletedProcess[bytes]"]


class InsideCases:
    """The tests; a subclass selects the scheduler with ``run``.

    Attributes:
        run: Arguments of ``torchx run`` before the component, such as ``-s local_docker``.
        image: The image of the apps; empty for the component's default.
        copies_ended: Whether ``torchx cp`` can copy files of a replica that has ended.
    """

    run: ClassVar[tuple[str, ...]] = ()
    image: ClassVar[str] = ""
    copies_ended: ClassVar[bool] = False

    @pytest.fixture
    def call(self, environment: dict[str, str], work: Path) -> Call:
        """Return a function that runs ``torchx`` with arguments and standard input."""

        def call(*words: object, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [TORCHX, *map(str, words)],
                cwd=work,
                env=environment,
                input=data,
                capture_output=True,
                timeout=120,
                check=False,
            )

        return call

    @pytest.fixture
    def work(self, tmp_path: Path) -> Path:
        """Create the working directory of the command, whose name has a quote and a space."""
        folder = tmp_path / "command's folder"
        folder.mkdir(exist_ok=True)
        return folder

    @pytest.fixture
    def submit(self, call: Call, request: pytest.FixtureRequest) -> Callable[[str], str]:
        """Return a function that submits a shell script and returns the handle of the app."""

        def submit(script: str) -> str:
            image = ["--image", self.image] if self.image else []
            done = call("run", *self.run, "utils.sh", *image, "sh", "-c", script)
            found = re.search(r"\w+://torchx/\S+", (done.stdout + done.stderr).decode())
            assert found is not None, done.stderr
            handle = found[0]
            request.addfinalizer(lambda: call("delete", handle))
            return handle

        return submit

    @pytest.fixture
    def running(self, call: Call, submit: Callable[[str], str]) -> str:
        """Submit an app, and return its handle when it runs."""
        handle = submit("sleep 86400")
        self.until_running(call, handle)
        return handle

    @staticmethod
    def until_running(call: Call, handle: str) -> None:
        attempts = []

        def runs() -> bool:
            attempts.append(call("exec", handle, "--", "true"))
            return not attempts[-1].returncode

        wait_for(runs, lambda: attempts[-1].stderr, pause=0.2)

    @pytest.mark.gate
    def test_exec_passes_code_bytes_and_streams(self, call: Call, running: str) -> None:
        data = os.urandom(3 << 20)
        done = call("exec", "-i", running, "--", "sh", "-c", "cat; echo e >&2; exit 9", data=data)
        assert (done.returncode, done.stdout == data) == (9, True)
        assert done.stderr.endswith(b"e\n")
        done = call("exec", running, "--", "sh", "-c", "kill -9 $$")
        assert done.returncode == 137
        done = call("exec", running, "--", "/no/such/program")
        assert done.returncode == 127, done
        assert b"/no/such/program" in done.stderr + done.stdout
        assert b"Traceback" not in done.stderr

    def test_shell_reads_commands(self, call: Call, running: str) -> None:
        done = call("shell", running, data=b"echo $((40 + 2))\nexit 4\n")
        assert (done.returncode, done.stdout) == (4, b"42\n")

    def test_a_terminal_option_without_a_terminal_is_one_line(
        self, call: Call, running: str
    ) -> None:
        done = call("exec", "-it", running, "--", "true")
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
        assert b"-t needs a terminal" in done.stderr

    def test_ctrl_c_reaches_the_command(
        self, running: str, environment: dict[str, str], work: Path
    ) -> None:
        script = "trap 'echo caught; exit 5' INT TERM; echo ready; while :; do sleep 0.1; done"
        with subprocess.Popen(
            [TORCHX, "exec", running, "--", "sh", "-c", script],
            cwd=work,
            env=environment,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.read() == b"caught\n"
            assert process.wait(60) == 5

    @pytest.mark.gate
    def test_a_folder_is_copied_both_ways(self, call: Call, running: str, work: Path) -> None:
        source = work / "data"
        (source / "deep").mkdir(parents=True)
        (source / "a b").write_bytes(os.urandom(300_000))
        (source / "a b").chmod(0o640)
        (source / "deep" / "up").symlink_to("../a b")
        (source / "deep").chmod(0o750)
        for target in ("copied", "copied/"):
            done = call("cp", source, f"{running}:{target}")
            assert done.returncode == 0, done.stderr
        for path in ("copied", "copied/data", "copied/deep/.."):
            assert call("cp", f"{running}:{path}", work / "back").returncode == 0
            copy = work / "back"
            if path.endswith(".."):
                break
            assert (copy / "a b").read_bytes() == (source / "a b").read_bytes()
            assert stat.S_IMODE((copy / "a b").stat().st_mode) == 0o640
            assert stat.S_IMODE((copy / "deep").stat().st_mode) == 0o750
            assert os.readlink(copy / "deep" / "up") == "../a b"
            subprocess.run(["rm", "-r", str(copy)], check=True)

    def test_bad_copies_are_one_line(self, call: Call, running: str, work: Path) -> None:
        (work / "file").touch()
        for words in (
            ("cp", f"{running}:no/such", "."),
            ("cp", "no-such-file", f"{running}:x"),
            ("cp", "file", f"{running}:no/such/folder/x"),
            ("cp", f"{running}:/", "no/such/folder/"),
            ("cp", "file", "other"),
        ):
            done = call(*words)
            assert done.returncode == 2, done.stderr
            errors = [line for line in done.stderr.splitlines() if b" INFO " not in line]
            assert len(errors) == 1, done.stderr
            assert errors[0].startswith(b"torchx: error: ")

    def test_a_replica_that_has_ended_is_one_line(
        self, call: Call, submit: Callable[[str], str], work: Path
    ) -> None:
        handle = submit("echo made > made-by-job; exit 0")
        assert call("wait", handle).returncode == 0
        for words in (("exec", handle, "--", "true"), ("shell", handle), ("forward", handle, 80)):
            done = call(*words)
            assert done.returncode == 1, done.stderr
            assert b"has ended" in done.stderr
            assert done.stderr.count(b"\n") == 1
        assert call("cp", f"{handle}:made-by-job", "copy").returncode == (not self.copies_ended)
        assert (work / "copy").exists() == self.copies_ended
