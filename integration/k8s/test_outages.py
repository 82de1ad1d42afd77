"""Tests of an API server that does not answer for a while: all requests have the same limit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from k8s_apps import app, running
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_runner import Runner
from torchx_sched_k8s.cluster import client
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppState
from torchx_specs.errors import BackendError


def test_a_wait_of_a_new_process_survives_an_outage(
    scheduler: KubernetesScheduler,
    double: Double,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    app_id = scheduler.submit(app(f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"), {})
    double.down()
    other = create_scheduler("other")  # the first request of this scheduler gets no answer
    runner = Runner("other", {"kubernetes": lambda *_, **__: other})
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(runner.wait, f"kubernetes://other/{app_id}", wait_interval=0.2)
        wait_for(lambda: "; retrying" in caplog.text)
        double.up()
        (tmp_path / "go").touch()
        status = waiting.result()
    other.close()
    assert status is not None
    assert status.state == AppState.SUCCEEDED


def test_all_give_up_after_the_same_time(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", float("inf"))
    monkeypatch.setenv(client.PATIENCE_VARIABLE, "2")
    scheduler = create_scheduler("test")
    app_id = scheduler.submit(app("exec sleep 86400"), {})
    described(scheduler, app_id, running)
    follower = iter(scheduler.log_iter(app_id, "main", should_tail=True))
    calls = (lambda: scheduler.describe(app_id), lambda: next(follower), lambda: scheduler.list())
    double.down()
    try:
        for call in calls:
            with pytest.raises(BackendError, match="no answer from the cluster"):
                call()
    finally:
        double.up()
