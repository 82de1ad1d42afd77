"""Tests of an API server that does not answer for a while: all requests have the same limit."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from k8s_apps import app, running
from k8s_double.handle import Double
from waiting import described

from torchx_runner import Runner
from torchx_sched_k8s.cluster import client
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppState
from torchx_specs.errors import BackendError


@pytest.fixture
def outage(double: Double) -> Callable[[], threading.Timer]:
    """A function that stops the API server for three seconds."""

    def stop() -> threading.Timer:
        double.down()
        timer = threading.Timer(3, double.up)
        timer.start()
        return timer

    return stop


def test_a_wait_of_a_new_process_survives_an_outage(
    scheduler: KubernetesScheduler, double: Double, outage: Callable[[], threading.Timer]
) -> None:
    app_id = scheduler.submit(app("sleep 2"), {})
    timer = outage()
    other = create_scheduler("other")  # the first request of this scheduler gets no answer
    runner = Runner("other", {"kubernetes": lambda *_, **__: other})
    status = runner.wait(f"kubernetes://other/{app_id}", wait_interval=0.2)
    timer.join()
    other.close()
    assert status is not None
    assert status.state == AppState.SUCCEEDED


def test_all_give_up_after_the_same_time(double: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", float("inf"))
    monkeypatch.setenv(client.PATIENCE_VARIABLE, "2")
    scheduler = create_scheduler("test")
    app_id = scheduler.submit(app("exec sleep 60"), {})
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
