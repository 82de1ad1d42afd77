"""Tests of apps that are withdrawn while they wait, and of sweeps that withdraw apps.

The apps wait in Kueue's queue, or for a node with room.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from k8s_apps import app, running, shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState

QUEUED = {"job_api": "batch", "queue": "users"}


@pytest.fixture(autouse=True)
def kueue(double: Double) -> None:
    double.kueue()


def job(double: Double) -> Any:
    [found] = double.objects("jobs.batch")
    return found


def submit_queued(scheduler: KubernetesScheduler, double: Double) -> str:
    """Submit an app that waits in Kueue's queue, and return the app's id."""
    app_id = scheduler.submit(app("echo began"), QUEUED)
    wait_for(lambda: double.objects("workloads.kueue.x-k8s.io"))
    return app_id


def after_first_read(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Carry out an action after the withdrawal has read the Job, and before its next request."""
    original = Cluster.get_or_none
    has_acted = threading.Event()

    def get_or_none(self: Cluster, path: str, what: str) -> dict[str, Any] | None:
        found = original(self, path, what)
        if what.startswith("withdraw ") and not has_acted.is_set():
            has_acted.set()
            action()
        return found

    monkeypatch.setattr(Cluster, "get_or_none", get_or_none)


def assert_never_starts(scheduler: KubernetesScheduler, double: Double, app_id: str) -> None:
    """Check that a withdrawn app has no pod although there is room, and that it can be deleted."""
    other = scheduler.submit(app("true"), {})
    described(scheduler, other)  # by its end, the controllers have handled earlier changes
    assert {
        pod["metadata"]["labels"]["app.kubernetes.io/instance"] for pod in double.objects("pods")
    } == {other.partition(":")[2]}
    scheduler.delete(app_id)
    scheduler.delete(other)
    wait_for(lambda: double.left() == [])


def test_a_queued_app_never_starts_after_its_withdrawal(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_queued(scheduler, double)
    assert scheduler.withdraw(app_id)
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    [workload] = double.objects("workloads.kueue.x-k8s.io")
    assert workload["spec"]["active"] is False
    double.admit()
    assert_never_starts(scheduler, double, app_id)


def test_an_app_that_is_admitted_during_the_withdrawal_runs(
    scheduler: KubernetesScheduler,
    double: Double,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = submit_queued(scheduler, double)

    def admit() -> None:
        double.admit()
        wait_for(lambda: not job(double)["spec"]["suspend"])

    after_first_read(monkeypatch, admit)
    assert not scheduler.withdraw(app_id)
    assert job(double)["spec"]["parallelism"] == 1
    assert described(scheduler, app_id).state == AppState.SUCCEEDED
    assert not scheduler.withdraw(app_id)


def test_an_app_that_is_admitted_after_the_patch_creates_no_pod(
    scheduler: KubernetesScheduler,
    double: Double,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = submit_queued(scheduler, double)
    original = Cluster.patch

    def patch(self: Cluster, *args: Any, **named: Any) -> dict[str, Any]:
        found = original(self, *args, **named)
        if named.get("version"):
            double.admit()
            wait_for(lambda: not job(double)["spec"]["suspend"])
        return found

    monkeypatch.setattr(Cluster, "patch", patch)
    assert scheduler.withdraw(app_id)
    described(scheduler, scheduler.submit(app("true"), {}))
    assert len(double.objects("pods")) == 1
    assert described(scheduler, app_id).state == AppState.CANCELLED
    assert scheduler.withdraw(app_id)


def test_other_changes_during_the_withdrawal_do_not_prevent_it(
    scheduler: KubernetesScheduler,
    double: Double,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = submit_queued(scheduler, double)
    cluster = scheduler._cluster
    path = f"/apis/batch/v1/namespaces/default/jobs/{job(double)['metadata']['name']}"
    note = {"metadata": {"annotations": {"note": "x"}}}
    after_first_read(monkeypatch, lambda: cluster.patch(path, note, "annotate"))
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED


def test_a_lost_response_does_not_make_the_withdrawal_fail(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_queued(scheduler, double)
    double.fault(503, method="PATCH", path="/jobs/", served=True)
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED


def test_an_interrupted_withdrawal_is_completed_by_the_next_one(
    scheduler: KubernetesScheduler,
    double: Double,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = submit_queued(scheduler, double)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(scheduler, "cancel", interrupt)
        with pytest.raises(KeyboardInterrupt):
            scheduler.withdraw(app_id)
    double.admit()  # Kueue does not know of the withdrawal yet
    wait_for(lambda: not job(double)["spec"]["suspend"])
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    assert double.objects("pods") == []


def test_an_app_that_kueue_has_evicted_has_started(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app("exec sleep 86400"), QUEUED)
    wait_for(lambda: double.admit())
    described(scheduler, app_id, running)
    [workload] = double.objects("workloads.kueue.x-k8s.io")
    path = (
        f"/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads/{workload['metadata']['name']}"
    )
    scheduler._cluster.patch(path, {"spec": {"active": False}}, "evict")
    wait_for(lambda: job(double)["spec"]["suspend"] and not job(double)["status"].get("startTime"))
    wait_for(lambda: double.objects("pods") == [])
    assert not scheduler.withdraw(app_id)
    assert job(double)["spec"]["parallelism"] == 1


def before_delete(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Carry out an action once, after the pod was read and before its deletion is requested."""
    original = Cluster.delete
    has_acted = threading.Event()

    def delete(self: Cluster, *args: Any, **named: Any) -> bool:
        if named.get("preconditions") and not has_acted.is_set():
            has_acted.set()
            action()
        return original(self, *args, **named)

    monkeypatch.setattr(Cluster, "delete", delete)


def submit_without_room(scheduler: KubernetesScheduler, double: Double, **fields: Any) -> str:
    """Submit an app while no node has room, and return the app's id."""
    double.play("unschedulable")
    app_id = scheduler.submit(app(shell("echo began", **fields)), {})
    wait_for(lambda: double.objects("pods"))
    return app_id


def find_room(double: Double) -> None:
    """Let the scheduler bind the only pod to the node."""
    double.stop_playing()
    wait_for(lambda: double.objects("pods")[0]["spec"].get("nodeName"))


def assert_unchanged(double: Double, *, retries: int) -> None:
    """Check that a withdrawal has left no trace in the Job."""
    assert job(double)["spec"]["backoffLimit"] == retries
    assert job(double)["spec"]["parallelism"] == 1
    withdrawal = [name for name in job(double)["metadata"]["annotations"] if "withdraw" in name]
    assert withdrawal == []


def test_a_pod_without_a_node_never_starts_after_its_withdrawal(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_without_room(scheduler, double)
    assert scheduler.withdraw(app_id)
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    [listed] = scheduler.list({})
    assert listed.state == AppState.CANCELLED
    double.stop_playing()
    assert_never_starts(scheduler, double, app_id)


def test_a_pod_that_is_bound_during_the_withdrawal_runs(
    scheduler: KubernetesScheduler,
    double: Double,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = submit_without_room(scheduler, double, max_retries=2)
    before_delete(monkeypatch, lambda: find_room(double))
    assert not scheduler.withdraw(app_id)
    assert_unchanged(double, retries=2)
    found = described(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert found.num_restarts == 0
    assert not scheduler.withdraw(app_id)


def test_a_new_reason_of_the_scheduler_does_not_prevent_the_withdrawal(
    scheduler: KubernetesScheduler,
    double: Double,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app_id = submit_without_room(scheduler, double)

    def change_status() -> None:
        [pod] = double.objects("pods")
        conditions = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient cpu.",
            }
        ]
        name = pod["metadata"]["name"]
        double.set_status("pods", "default", name, {"conditions": conditions})

    before_delete(monkeypatch, change_status)
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED


def test_a_lost_response_to_the_deletion_does_not_make_the_withdrawal_fail(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_without_room(scheduler, double)
    double.fault(503, method="DELETE", path="/pods/", served=True)
    double.pod_gc(2)  # the deleted pod exists until the client has read it
    assert scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED


def test_an_app_is_cancelled_as_soon_as_its_withdrawn_job_has_failed(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_without_room(scheduler, double)
    withdraw_killed(app_id, 3)
    found = described(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg == "withdrawn before a node was free"


# A client that is killed after its n-th request that changes an object.
_KILLED = """
import os, signal, sys
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.scheduler import create_scheduler

original, left = Cluster.request, int(sys.argv[2])

def request(self, method, *args, **named):
    global left
    found = original(self, method, *args, **named)
    if method != "GET":
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
    return found

Cluster.request = request
create_scheduler("test").withdraw(sys.argv[1])
"""


def withdraw_killed(app_id: str, requests: int) -> None:
    """Withdraw an app in a process that is killed after some requests that change objects."""
    done = subprocess.run([sys.executable, "-c", _KILLED, app_id, str(requests)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("requests", [1, 2, 3, 4])
def test_the_withdrawal_of_a_killed_client_is_completed(
    scheduler: KubernetesScheduler, double: Double, requests: int
) -> None:
    app_id = submit_without_room(scheduler, double)
    if requests == 2:
        double.pod_gc(3600)  # the deleted pod exists until the next call has read it
    withdraw_killed(app_id, requests)
    withdrawn: list[bool] = []
    thread = threading.Thread(target=lambda: withdrawn.append(scheduler.withdraw(app_id)))
    thread.start()
    wait_for(lambda: not double.objects("pods") or '"deleted": true' in str(job(double)))
    double.pod_gc(0.3)
    thread.join()
    assert withdrawn == [True]
    assert described(scheduler, app_id).state == AppState.CANCELLED
    assert double.objects("pods") == []


def test_a_pod_that_is_bound_after_the_client_was_killed_runs(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_without_room(scheduler, double, max_retries=2)
    withdraw_killed(app_id, 1)
    assert job(double)["spec"]["backoffLimit"] == 0
    find_room(double)
    assert not scheduler.withdraw(app_id)
    assert_unchanged(double, retries=2)
    assert described(scheduler, app_id).state == AppState.SUCCEEDED


def test_an_unrecorded_deletion_of_a_removed_pod_is_uncertain(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = submit_without_room(scheduler, double)
    withdraw_killed(app_id, 2)
    wait_for(lambda: double.objects("pods") == [])
    assert not scheduler.withdraw(app_id)
    assert described(scheduler, app_id).state == AppState.FAILED
