"""Tests of the command with ``local_cwd`` and our components, if these are installed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from patience import wait_for

pytest.importorskip("torchx_sched_local")
pytest.importorskip("torchx_components")

ECHO = ("-s", "local_cwd", "utils.echo", "--msg", "hi")
Start = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Return a function that starts the command in a new folder."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHX", "LOGLEVEL"))}
    own = {"TORCHX_HOME": str(tmp_path / "torchx"), "VIRTUAL_ENV": sys.prefix}
    environment = {**keep, "HOME": str(tmp_path), **own}

    def start_command(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "torchx_cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=environment,
        )

    return start_command


@pytest.fixture
def run(start: Start) -> Run:
    """Return a function that runs the command to its end."""

    def run_command(*words: str) -> subprocess.CompletedProcess[str]:
        process = start(*words)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    return run_command


def test_detached_app_outlives_the_command(run: Run) -> None:
    handle = run("run", "--detach", "utils.sh", "sleep", "60").stdout.strip()
    assert run("wait", "--until", "RUNNING", handle).stdout == "RUNNING\n"
    assert run("wait", "--timeout", "0.1", handle).returncode == 124
    assert run("cancel", handle).returncode == 0
    result = run("wait", "-o", "yaml", handle)
    assert result.returncode == 1
    assert yaml.safe_load(result.stdout)["state"] == "CANCELLED"


def has_ended(pid: int) -> bool:
    """Return whether a process has ended or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_ctrl_c_ends_the_job_and_all_its_processes(start: Start, run: Run, tmp_path: Path) -> None:
    process = start("run", "utils.sh", "--", "sh", "-c", "echo $$ >pid; echo go; sleep 300 & wait")
    said = ""
    while "sh/0 go" not in said:
        said += process.stderr.readline()  # type: ignore[union-attr]
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "State: CANCELLED" in run("status", out.strip()).stdout
    [pid_file] = [*tmp_path.rglob("pid")]
    wait_for(lambda: has_ended(int(pid_file.read_text())))


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("-cfg", "log_dir=/proc/nope", "utils.echo"), "cannot write the logs to /proc/nope"),
        (("utils.binary", "--entrypoint", "/no/such"), "cannot run '/no/such'"),
        (("utils.ecko",), "no component 'utils.ecko'; did you mean 'utils.echo'?"),
        (("utils.echo", "--mesg", "x"), "did you mean '--msg'?"),
        (("-s", "local_cdw", "utils.echo"), "did you mean 'local_cwd'?"),
        (("-cfg", "logdir=x", "utils.echo"), "did you mean 'log_dir'?"),
    ],
)
def test_bad_request_is_one_line(run: Run, words: tuple[str, ...], error: str) -> None:
    result = run("run", *words)
    assert (result.returncode, result.stdout) == (2, "")
    assert error in result.stderr
    assert result.stderr.startswith("torchx: error: ")
    assert result.stderr.count("\n") == 1


def test_builtins_lists_our_components(run: Run) -> None:
    lines = run("builtins").stdout.splitlines()
    assert lines[0] == f"Found {len(lines) - 1} builtin components:"
    assert lines[1] == "  1. dist.ddp"
    assert any(line.endswith(". utils.echo") for line in lines)
    assert "def echo(" in run("builtins", "--print", "utils.echo").stdout


def test_problem_that_two_checks_find_is_reported_once(run: Run, tmp_path: Path) -> None:
    env = {"": "x", "C": "a\0"}
    role = {"name": "r", "image": "", "entrypoint": "echo", "args": ["a\0b"], "env": env}
    (tmp_path / "job.json").write_text(json.dumps({"name": "job", "roles": [role]}))
    ran = run("run", "-s", "local_cwd", "job.json")
    assert ran.returncode == 2
    assert ran.stdout == ""
    problems = ran.stderr.removeprefix("torchx: error: ").strip().split("; ")
    assert problems == [
        "role 'r': args[0] contains a NUL character",
        "role 'r': env has '', which is not a valid variable name",
        "role 'r': env['C'] contains a NUL character",
    ]
