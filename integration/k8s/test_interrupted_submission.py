"""Tests of a client that is killed while it submits an app of several roles."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from k8s_apps import PYTHON, app, running, shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState

SUBMIT = """
from k8s_apps import app, shell
from torchx_sched_k8s.scheduler import create_scheduler
cfg = {"restarts_image": sys.argv[1], "fail_together": bool(sys.argv[2])}
roles = [shell("exec sleep 86400", name) for name in ("a", "b", "c")]
create_scheduler("killed").submit(app(*roles), cfg)
"""


def start_submission(flag: str) -> subprocess.Popen[bytes]:
    """Start a process that submits an app; see :func:`kill_while_submitting`."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n{SUBMIT}"
    return subprocess.Popen([sys.executable, "-c", code, PYTHON, flag])


def kill_while_submitting(double: Double, fault: dict[str, Any], flag: str) -> None:
    """Submit an app in another process, and kill the process when its requests begin to fail.

    Args:
        double: The double.
        fault: The requests that fail, as arguments of ``double.fault``.
        flag: ``supervised`` for an app with a supervisor; empty for an app without one.
    """
    double.fault(503, count=-1, **fault)
    process = start_submission(flag)
    try:
        wait_for(lambda: [r for r in double.requests() if r["code"] == 503])
    finally:
        process.kill()
        process.wait()
    double.fault_free()


@pytest.mark.parametrize("supervised", ["", "supervised"])
@pytest.mark.parametrize(
    ("fault", "existing"),
    [
        ({"method": "POST", "path": "/jobs[?](?!.*dryRun)", "after": 2}, 2),
        ({"method": "POST", "path": "/services[?](?!.*dryRun)"}, -1),
        ({"method": "PATCH", "path": "/jobs/"}, -1),
    ],
    ids=["between two Jobs", "before the Service", "before the start"],
)
def test_no_role_runs_and_the_next_submission_removes_the_app(
    scheduler: KubernetesScheduler,
    double: Double,
    fault: dict[str, Any],
    existing: int,
    supervised: str,
) -> None:
    kill_while_submitting(double, fault, supervised)
    (left,) = scheduler.list()
    found = described(scheduler, left.app_id, lambda _: True)
    every = 4 if supervised else 3
    count = every if existing < 0 else existing
    assert found.state in (AppState.PENDING, AppState.SUBMITTED)
    assert f"its submission is not finished ({count} of {every} Jobs exist)" in found.msg
    assert "submit the app again or delete it" in found.msg
    assert double.objects("pods") == []
    # submit the same app again
    cfg = {"restarts_image": PYTHON, "fail_together": bool(supervised)}
    app_id = scheduler.submit(app(*(shell("exec sleep 86400", n) for n in ("a", "b", "c"))), cfg)
    described(scheduler, app_id, running)
    assert [one.app_id for one in scheduler.list()] == [app_id]
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])


def test_a_submission_that_goes_on_is_left_alone(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.fault(503, count=-1, method="POST", path="/services[?](?!.*dryRun)")
    process = start_submission("")
    try:
        wait_for(lambda: [r for r in double.requests() if r["code"] == 503])
        double.fault_free()
        app_id = scheduler.submit(app("exec sleep 86400"), {})
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    apps = {one.app_id for one in scheduler.list()}
    assert app_id in apps
    assert len(apps) == 2


def test_an_app_of_a_killed_client_can_be_deleted(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    kill_while_submitting(double, {"method": "POST", "path": "/services[?](?!.*dry)"}, "")
    (left,) = scheduler.list()
    scheduler.delete(left.app_id)
    wait_for(lambda: double.left() == [])
