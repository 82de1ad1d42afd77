"""Tests of the program process_monitor: of how it starts, ends and cleans up its program."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import fsspec
import pytest

from patience import PATIENCE, wait_for
from torchx_apps.process_monitor import (
    _PR_GET_CHILD_SUBREAPER,
    TIMEOUT_EXIT_CODE,
    AwaitedFile,
    Monitor,
    main,
    parse_args,
)

MONITOR = [sys.executable, "-m", "torchx_apps.process_monitor"]
SIGTERM_CODE = 256 - signal.SIGTERM  # the exit code that a shell shows for Python's exit(-15)


def on_signal(signum: int, action: str) -> list[str]:
    """Return the arguments of a program that handles a signal with ``action``, and then waits.

    The program prints ``ready`` once its signal handler is set.
    """
    code = (
        f"import signal, time\nsignal.signal({int(signum)}, {action})\nprint('ready', flush=True)\n"
        # A signal just before a sleep does not shorten it.
        "while True: time.sleep(0.1)"
    )
    return ["--", sys.executable, "-c", code]


@contextlib.contextmanager
def monitor(*argv: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*MONITOR, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def outcome(*argv: str) -> tuple[int, str, str]:
    with monitor(*argv) as process:
        out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def is_running(pid: int) -> bool:
    """Return whether the process runs; a zombie does not count as running."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the process ended before open() or read()
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--", "true"], 0, "exited with exit code 0"),
        (["sh", "-c", "exit 3"], 3, "exited with exit code 3"),
        (["--", "sh", "-c", "kill -TERM $$"], SIGTERM_CODE, "exited with exit code -15"),
        (["--timeout", "0.1", "sleep", "60"], SIGTERM_CODE, "the timeout of 0.1 s is over"),
        (["--timeout", "0", "sleep", "60"], SIGTERM_CODE, "the timeout of 0 s is over"),
        (["--timeout", "60", "true"], 0, "exit code 0"),
        (["--timeout", "0.1", "--start_on_file", "{tmp}/none", "true"], 34, "not starting"),
        (["--start_on_file", "{tmp}/there", "true"], 0, "exit code 0"),
        (["--start_on_file", "", "--exit_on_file", "", "true"], 0, "exit code 0"),
        (["--exit_on_file", "{tmp}/there", "sleep", "60"], SIGTERM_CODE, "there exists"),
        (["--exit_on_file", "{tmp}", "sleep", "60"], SIGTERM_CODE, "exists, terminating"),
        (
            [
                "--timeout",
                "0.2",
                "--kill_timeout",
                "0.1",
                "--",
                "sh",
                "-c",
                "trap '' TERM; sleep 60",
            ],
            256 - signal.SIGKILL,
            "still running 0.1 s later, killing",
        ),
        (["--", "no-such-program"], 127, "cannot start no-such-program: No such file"),
        (["--", "/etc/passwd"], 126, "cannot start /etc/passwd: Permission denied"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_exit_code_and_message(argv: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    got, _, err = outcome(*[word.format(tmp=tmp_path) if "{" in word else word for word in argv])
    assert got == code
    assert message in err


def test_arguments_reach_the_program_unchanged() -> None:
    words = ["--timeout", "3", "--", "", "a b", "$HOME", "-x", "ü\n'\""]
    code, out, _ = outcome("--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert (code, out) == (0, f"{words}\n")


def test_program_starts_when_the_file_appears(tmp_path: Path) -> None:
    with monitor("--start_on_file", str(tmp_path / "go"), "echo", "started") as process:
        time.sleep(0.3)
        assert process.poll() is None
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, "started\n")


def test_program_may_handle_sigterm_when_the_file_appears(tmp_path: Path) -> None:
    file = tmp_path / "stop"
    with monitor(
        "--exit_on_file", str(file), *on_signal(signal.SIGTERM, "lambda *_: exit(7)")
    ) as process:
        assert line(process.stdout) == "ready"
        file.touch()
        assert process.wait(PATIENCE) == 7


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_are_passed_on(signum: signal.Signals) -> None:
    with monitor(*on_signal(signum, "lambda *_: exit(9)")) as process:
        assert line(process.stdout) == "ready"
        process.send_signal(signum)
        assert process.wait(PATIENCE) == 9


def test_program_that_ignores_a_signal_is_killed() -> None:
    ignoring = on_signal(signal.SIGTERM, "signal.SIG_IGN")
    with monitor("--kill_timeout", "0.1", *ignoring) as process:
        assert line(process.stdout) == "ready"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 256 - signal.SIGKILL


def test_signal_before_the_start_ends_the_monitor(tmp_path: Path) -> None:
    with monitor("--start_on_file", str(tmp_path / "none"), "echo", "no") as process:
        assert line(process.stderr).endswith(f"waiting for {tmp_path}/none")
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (128 + signal.SIGTERM, "")


def test_ignored_signal_stays_ignored() -> None:
    argv = ["nohup", *MONITOR, "--", "sh", "-c", "kill -HUP $PPID; sleep 0.3; echo alive"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("argv", "end", "code"),
    [
        ([], "exit 5", 5),
        (["--exit_on_file", "{ready}"], "sleep 60", SIGTERM_CODE),
    ],
)
@pytest.mark.parametrize("ignore", ["", "trap '' TERM;"])
def test_nothing_outlives_the_monitor(
    argv: list[str], end: str, code: int, ignore: str, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    script = f"""
        ({ignore} echo $BASHPID; sleep 60 & echo $!; > {ready}; wait) &
        while [ ! -e {ready} ]; do sleep 0.01; done
        {end}
    """
    argv = [word.format(ready=ready) for word in argv]
    got, out, _ = outcome(*argv, "--kill_timeout", "0.3", "--", "bash", "-c", script)
    assert got == code
    started = [int(word) for word in out.split()]
    assert len(started) == 2
    assert not any(is_running(pid) for pid in started)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent-death signal")
def test_program_ends_when_the_monitor_is_killed() -> None:
    with monitor("--", "sh", "-c", "echo $$; exec sleep 60") as process:
        pid = int(line(process.stdout))
        assert is_running(pid)
        process.kill()
        wait_for(lambda: not is_running(pid))


class HiccupMockFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A file system whose method ``exists`` takes its results and errors from ``answers``."""

    protocol = "hiccupmock"
    cachable = False
    answers: list[Any] = []
    invalidated = 0

    def exists(self, path: str, **kwargs: Any) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    def invalidate_cache(self, path: str | None = None) -> None:
        HiccupMockFileSystem.invalidated += 1


def test_failing_file_system_is_polled_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fsspec.register_implementation("hiccupmock", HiccupMockFileSystem, clobber=True)
    answers = [OSError("no network"), OSError("no network"), False, True]
    monkeypatch.setattr(HiccupMockFileSystem, "answers", answers)
    monkeypatch.setattr(HiccupMockFileSystem, "invalidated", 0)
    monitor = Monitor(["sleep", "60"], exit_on_file="hiccupmock://done", poll_rate=0.01)
    assert monitor.run() == -signal.SIGTERM
    assert answers == []
    assert HiccupMockFileSystem.invalidated == 4  # a cached listing would hide a new file
    assert capfd.readouterr().err.count("no network") == 1


def adopts_orphans() -> bool:
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found))
    return bool(found.value)


def test_file_may_be_on_any_file_system() -> None:
    fs = fsspec.filesystem("memory")
    timer = threading.Timer(0.1, lambda: fs.touch("/monitor/done"))
    timer.start()
    before = (signal.getsignal(signal.SIGTERM), adopts_orphans())
    try:
        stopped = Monitor(["sleep", "60"], exit_on_file="memory://monitor/done", poll_rate=0.02)
        assert stopped.run() == -signal.SIGTERM
    finally:
        timer.join()
        fs.rm("/monitor", recursive=True)
    assert (signal.getsignal(signal.SIGTERM), adopts_orphans()) == before


@pytest.mark.parametrize(
    ("url", "poll_rate", "interval"),
    [("/x", 5, 0.1), ("/x", 0.01, 0.01), ("memory://x", 5, 5)],
)
def test_poll_interval_depends_on_the_file_system(
    url: str, poll_rate: float, interval: float
) -> None:
    assert AwaitedFile(url, poll_rate).interval == interval


def test_main_exits_with_the_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["--timeout", "0.05", "--start_on_file", f"/{os.getpid()}/never", "true"])
    assert exited.value.code == TIMEOUT_EXIT_CODE == 34


DEFAULTS = {
    "timeout": None,
    "start_on_file": None,
    "exit_on_file": None,
    "poll_rate": 5,
    "kill_timeout": 60,
    "args": [],
}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["x"], {"entrypoint": "x"}),
        (["--", "x"], {"entrypoint": "x"}),
        (["--timeout", "3", "x", "-y", "--timeout"], {"timeout": 3.0, "args": ["-y", "--timeout"]}),
        (["x", "--", "y", "--"], {"args": ["--", "y", "--"]}),
        (["--", "x", "--", "y"], {"args": ["--", "y"]}),
        (["--poll_rate", "0.5", "--kill_timeout", "0", "x"], {"poll_rate": 0.5, "kill_timeout": 0}),
        (["--start_on_file", "a", "x", ""], {"start_on_file": "a", "args": [""]}),
        (["--exit_on_file=b", "x"], {"exit_on_file": "b"}),
    ],
)
def test_parse_args(argv: list[str], expected: dict[str, Any]) -> None:
    assert vars(parse_args(argv)) == {**DEFAULTS, "entrypoint": "x", **expected}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: entrypoint"),
        (["--"], "required: entrypoint"),
        (["--timeout", "soon", "x"], "expected a number, got 'soon'"),
        (["--timeout", "nan", "x"], "expected a number, got 'nan'"),
        (["--timeout", "-1", "x"], "must not be negative"),
        (["--poll_rate", "0", "x"], "must be greater than 0"),
        (["--nope", "x"], "--nope"),
    ],
)
def test_invalid_arguments_are_an_error(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(argv)
    error = capsys.readouterr().err
    assert exited.value.code == 2
    assert message in error
    assert error.count("\n") == 1
