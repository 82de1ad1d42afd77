"""The scheduler reaches its cluster only through its host."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from torchx_kit.hosts.testing import FakeHost
from torchx_sched_slurm.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.schedulers import Stream


def test_job_of_a_remote_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    state = "RUNNING"
    path = ""

    def command(argv: list[str]) -> str:
        nonlocal path
        if argv[0] == "sbatch":
            path = argv[-1]
            return "17\n"
        if argv[0] == "squeue":
            row = ["17", state, "", "", "n1", "", "/cluster/home/job", "app"]
            return "\x1f".join([*row, path, "N/A"])
        return ""

    host = FakeHost(str(tmp_path / "remote"), command)
    scheduler = create_scheduler("test", host=host)
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    app_id = scheduler.submit(app, {"job_dir": "job"})

    argv = host.commands[0]
    assert "--chdir=/cluster/home/job" in argv
    script = argv[-1]
    record = posixpath.dirname(script)
    assert record.startswith("/cluster/home/job/.torchx-slurm/")
    assert host.read_text(script).startswith("#!/bin/bash")

    host.write(f"{record}/replica-0-0", "0 n1 5\n")
    host.write("/cluster/home/job/slurm-17-main-0.out", "one\n")
    description = scheduler.describe(app_id)
    assert description is not None
    assert description.state == AppState.RUNNING
    assert description.roles_statuses[0].replicas[0].node == "n1"
    assert list(scheduler.log_iter(app_id, "main")) == ["one\n"]

    followed = scheduler.log_iter(app_id, "main", should_tail=True, streams=Stream.STDOUT)
    host.write(f"{record}/outcome", "SUCCEEDED 0 0 9\n")
    state = "COMPLETED"
    assert list(followed) == ["one\n"]
    assert [(item.app_id, item.state) for item in scheduler.list()] == [("17", AppState.SUCCEEDED)]
    assert host.commands[-2][-2:] == ["-u", "fake-user"]

    scheduler.delete(app_id)
    assert not host.exists("/cluster/home/job/.torchx-slurm")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(".torchxslurmjobdirs", "remote", "torchx"),
    ]
