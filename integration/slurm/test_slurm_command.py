"""The command ``torchx`` on a real Slurm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import slurm as service
from service_process import recorded_pids
from slurm_jobs import Cluster

Torchx = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def environment(environment: dict[str, str], cluster: Cluster) -> dict[str, str]:
    return {**environment, **cluster.variables}


@pytest.mark.gate
def test_rerun_takes_the_submitted_files_or_the_present_ones(
    torchx: Torchx, tmp_path: Path
) -> None:
    script = tmp_path / "work" / "train.py"
    script.write_text("import sys; print('before', *sys.argv[1:])\n")
    ran = torchx("run", "-s", "slurm", "--wait", "train.py", "--lr", "1")
    assert ran.returncode == 0, ran.stderr
    script.write_text("import sys; print('after', *sys.argv[1:])\n")
    for words, expected, origin in (
        (["--lr", "2"], "before --lr 2", "code: as it was submitted, in "),
        (["--lr", "3"], "before --lr 3", "code: as it was submitted, in "),
        (["--workspace", "."], "after --lr 3", ""),
        ([], "after --lr 3", "code: as it was submitted, in "),
    ):
        done = torchx("rerun", "--wait", "@1", *words)
        assert done.returncode == 0, done.stderr
        assert origin in done.stderr
        assert torchx("log", done.stdout.strip()).stdout.endswith(f" {expected}\n")


@pytest.mark.parametrize("command", ["list", "status", "cancel"])
def test_a_controller_that_is_down_ends_commands_without_retries(
    own: Cluster, environment: dict[str, str], tmp_path: Path, command: str
) -> None:
    service.kill_daemon(own.folder, "slurmctld")
    target = ["-s", "slurm"] if command == "list" else ["slurm://torchx/1"]
    done = subprocess.run(
        [Path(sys.executable).parent / "torchx", command, *target],
        env={**environment, **own.variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert re.search(r"scontrol ping: Slurmctld\(primary\) at \S+ is DOWN", done.stderr)
    assert "Traceback" not in done.stderr


def test_a_slow_controller_is_waited_for(
    own: Cluster, environment: dict[str, str], tmp_path: Path
) -> None:
    pid = recorded_pids(own.folder)["slurmctld"]
    os.kill(pid, signal.SIGSTOP)  # connections succeed, but nothing answers
    try:
        with subprocess.Popen(
            [Path(sys.executable).parent / "torchx", "list", "-s", "slurm"],
            env={**environment, **own.variables},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            # torchx warns when the first query, which has a short time limit, fails
            assert "squeue has not answered" in process.stderr.readline()
            os.kill(pid, signal.SIGCONT)
            assert process.wait(60) == 0
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_log_sink_gets_both_streams_of_each_replica_once(
    torchx: Torchx, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Each reading mixes the two streams in another order, so the sink saves them separately."""
    work = tmp_path / "work"
    (work / ".torchxconfig").write_text(f"[log_sink:disk]\nurl = file://{tmp_path}/copies\n")
    # The first failure ends the other replica, so each replica waits until both have written all.
    script = (
        "for i in $(seq 40); do echo out $i; echo err $i >&2; sleep 0.1; done; echo last;"
        f" touch {tmp_path}/$TORCHX_REPLICA_ID;"
        f" until [ -e {tmp_path}/0 ] && [ -e {tmp_path}/1 ]; do sleep 0.1; done; exit 3"
    )
    ran = torchx("run", "-s", "slurm", "utils.sh", "--num_replicas", 2, "--", "sh", "-c", script)
    assert ran.returncode == 0, ran.stderr
    handle = ran.stdout.strip()
    assert torchx("wait", "--until", "RUNNING", "--timeout", "120s", handle).returncode == 0
    for _ in range(2):  # save what the logs contain so far
        assert torchx("log", "--save", handle).returncode == 0
    done = torchx("watch", "--interval", "1s", "--save", handle)
    assert done.returncode == 1, done.stderr
    assert "FAILED" in done.stdout
    out = [f"out {i}" for i in range(1, 41)] + ["last"]
    err = [f"err {i}" for i in range(1, 41)]
    for k in range(2):
        shown = {
            name: torchx("log", "--saved", f"--{name}", f"{handle}/sh/{k}").stdout
            for name in ("stdout", "stderr")
        }
        lines = {name: text.replace(f"sh/{k} ", "").splitlines() for name, text in shown.items()}
        assert lines["stdout"] == out
        # bash writes "Terminated" to the log of the replica that Slurm ends.
        assert [line for line in lines["stderr"] if line != "Terminated"] == err
    assert "0 lines added; the copy is complete" in torchx("log", "--save", handle).stderr
