"""The scheduler reaches its cluster only through its host."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.hosts.testing import FakeHost
from torchx_sched_lsf.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.schedulers import Stream


def test_app_of_a_remote_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)

    state = "RUN"

    def command(argv: list[str]) -> str:
        if argv[0] == "bjobs":
            return f"101 {state} n1 name\n"
        return "Job <101> is submitted to queue <normal>.\n" if argv[0] == "bsub" else ""

    host = FakeHost(str(tmp_path / "remote"), command)
    scheduler = create_scheduler("test", host=host)
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    app_id = scheduler.submit(app, {"jobdir": "job"})

    assert host.commands[0] == ["bsub", "-V"]
    assert host.commands[-1][:2] == ["bsub", "-J"]
    record = f"/cluster/home/job/.torchx-lsf/{app_id}"
    script = f"{record}/script"
    assert host.read_text(script).startswith("#!/bin/bash")

    host.write(f"{record}/replica-0-0", "0 n1 5\n")
    host.write(f"/cluster/home/job/{app_id}-main-0.out", "one\n")
    description = scheduler.describe(app_id)
    assert description is not None
    assert description.state == AppState.RUNNING
    assert description.roles_statuses[0].replicas[0].node == "n1"
    assert list(scheduler.log_iter(app_id, "main")) == ["one\n"]

    followed = scheduler.log_iter(app_id, "main", should_tail=True, streams=Stream.STDOUT)
    host.write(f"{record}/replica-0-0", "0 n1 5 6 0\n")
    assert list(followed) == ["one\n"]
    state = "DONE"
    assert [(item.app_id, item.state) for item in scheduler.list()] == [
        (app_id, AppState.SUCCEEDED)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["remote", "torchx"]
