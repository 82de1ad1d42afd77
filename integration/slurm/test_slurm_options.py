"""Options that only a real cluster can check: accounts, reservations, nodes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from slurm_jobs import ACCOUNTING, Cluster, app, wait_for

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppState

accounting = pytest.mark.parametrize("cluster", [ACCOUNTING], indirect=True)


def submit(scheduler: SlurmScheduler, line: str = "sleep 86400", **cfg: object) -> str:
    return scheduler.submit(app(line), cfg)


def job(app_id: str) -> dict[str, str]:
    """Return the fields of ``scontrol show job``."""
    command = ["scontrol", "-o", "show", "job", app_id]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = (word.partition("=") for word in out.split())
    return {key: value for key, _, value in pairs}


@accounting
def test_account_and_quality_of_service_are_used(scheduler: SlurmScheduler) -> None:
    app_id = submit(scheduler, account="research", qos="one", time="5", constraint="cpu&small")
    found = job(app_id)
    assert (found["Account"], found["QOS"]) == ("research", "one")
    assert (found["TimeLimit"], found["Features"]) == ("00:05:00", "cpu&small")
    second = submit(scheduler, account="research", qos="one")
    waiting = wait_for(
        scheduler, second, AppState.PENDING, until=lambda f: "QOSMaxJobsPerUserLimit" in f.msg
    )
    assert waiting.roles_statuses[0].replicas[0].reason == waiting.msg


def test_reservation_is_used(cluster: Cluster, scheduler: SlurmScheduler) -> None:
    reserve = "ReservationName=torchx StartTime=now Duration=10 Nodes=n3 Users=root"
    subprocess.run(["scontrol", "create", *reserve.split()], check=True, capture_output=True)
    try:
        app_id = submit(scheduler, reservation="torchx")
        found = wait_for(scheduler, app_id, AppState.RUNNING)
        assert job(app_id)["Reservation"] == "torchx"
        assert found.roles_statuses[0].replicas[0].node == "n3"
        scheduler.cancel(app_id)
        wait_for(scheduler, app_id)
    finally:
        subprocess.run(["scontrol", "delete", "ReservationName=torchx"], check=True)


def test_nodes_are_selected_and_excluded(scheduler: SlurmScheduler) -> None:
    named = submit(scheduler, nodelist="n2", exclusive=True)
    found = wait_for(scheduler, named, AppState.RUNNING)
    assert found.roles_statuses[0].replicas[0].node == "n2"
    assert job(named)["OverSubscribe"] == "NO"
    other = submit(scheduler, "echo $SLURMD_NODENAME", exclude="n1,n3")
    assert wait_for(scheduler, other).roles_statuses[0].replicas[0].node == "n4"


def test_dependency_mail_and_other_directives(scheduler: SlurmScheduler) -> None:
    first = submit(scheduler, "until [ -e go ]; do sleep 0.1; done")
    options = {"mail-user": "root", "mail-type": "FAIL", "extra": ["nice=100", "deadline=now+1day"]}
    second = submit(scheduler, "true", dependency=f"afterok:{first}", **options)
    waiting = wait_for(
        scheduler, second, AppState.PENDING, until=lambda found: "Dependency" in found.msg
    )
    assert waiting.state == AppState.PENDING
    found = job(second)
    assert (found["MailUser"], found["MailType"]) == ("root", "FAIL")
    assert found["Nice"] == "100"
    assert found["Deadline"] != "N/A"
    Path("go").touch()
    assert wait_for(scheduler, second).state == AppState.SUCCEEDED
