"""The scheduler reaches its cluster only through its host."""

from __future__ import annotations

import posixpath
from pathlib import Path

import pytest

from torchx_kit.hosts.testing import FakeHost
from torchx_sched_sge.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.schedulers import Stream

RUNNING = """\
<job_info><queue_info><Queue-List><name>all.q@n1</name><job_list><JB_job_number>17</JB_job_number><JB_name>x</JB_name>\
<state>r</state><tasks>1</tasks></job_list></Queue-List></queue_info></job_info>
"""
EMPTY = "<job_info/>"


def test_app_of_a_remote_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    queue = RUNNING

    def command(argv: list[str]) -> str:
        return {"qsub": "17.1-1:1\n", "qstat": queue}.get(argv[0], "")

    host = FakeHost(str(tmp_path / "remote"), command)
    scheduler = create_scheduler("test", host=host)
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    app_id = scheduler.submit(app, {"job_dir": "job"})

    assert [argv[0] for argv in host.commands] == ["/bin/bash", "qsub"]
    script = host.commands[1][-2]
    record = f"/cluster/home/job/.torchx-sge/{app_id}"
    assert posixpath.dirname(script) == record
    assert host.read_text(script).startswith("#!/bin/bash")

    host.write(f"{record}/replica-0-0", "0 n1 5\n")
    host.write(f"/cluster/home/job/{app_id}-main-0.out", "one\n")
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state == AppState.RUNNING
    assert found.roles_statuses[0].replicas[0].node == "n1"
    followed = scheduler.log_iter(app_id, "main", should_tail=True, streams=Stream.STDOUT)
    host.write(f"{record}/replica-0-0", "0 n1 5 6 0\n")
    queue = EMPTY
    assert list(followed) == ["one\n"]
    assert [item.state for item in scheduler.list()] == [AppState.SUCCEEDED]
    scheduler.cancel(app_id)
    assert host.commands[-1][0] == "qstat"  # an ended app is not deleted
    assert sorted(path.name for path in tmp_path.iterdir()) == ["remote", "torchx"]


def test_replicas_that_left_the_queue_have_the_reason_of_the_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    accounting = ""

    def command(argv: list[str]) -> str:
        return {"qsub": "17.1-1:1\n", "qstat": EMPTY, "qacct": accounting}.get(argv[0], "")

    host = FakeHost(str(tmp_path / "remote"), command)
    scheduler = create_scheduler("test", host=host)
    app_id = scheduler.submit(AppDef("app", [Role("main", image="", entrypoint="true")]), {})
    host.write(f"{host.resolve()}/.torchx-sge/{app_id}/replica-0-0", "0 n1 5\n")

    # the accounting is written later than the end of the job
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.msg) == (
        AppState.FAILED,
        "main/0: it left the queue without reporting its end: it was killed",
    )
    accounting = "=====\njobnumber 17\ntaskid 1\nfailed 37 : limit\nexit_status 137 (Killed)\n"
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.msg.startswith("main/0: limit of the run time")
    assert found.roles_statuses[0].replicas[0].exit_code == -9
