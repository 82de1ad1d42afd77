"""Tests of commands in pods: clusters before Kubernetes 1.30, missing rights, deleted pods."""

from __future__ import annotations

import threading

import pytest
from k8s_apps import shell
from k8s_double.handle import Double
from waiting import described

from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_sched_k8s.sessions import PodExec, open_port
from torchx_specs import AppDef, AppState
from torchx_specs.errors import BackendError
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.sessions import ReplicaNotRunningError, Session


@pytest.fixture
def app_id(scheduler: KubernetesScheduler, image: str) -> str:
    app = AppDef("inside", [shell("sleep 86400", image=image)])
    found = scheduler.submit(app, {"namespace": "default"})
    described(scheduler, found, lambda view: view.state == AppState.RUNNING)
    return found


def output_of(session: Session) -> bytes:
    return b"".join(data for stream, data in session.output() if stream == Stream.STDOUT)


def test_an_older_cluster_cannot_end_the_input(
    scheduler: KubernetesScheduler,
    app_id: str,
    double: Double,
    caplog: pytest.LogCaptureFixture,
) -> None:
    double.serve_sessions(protocols=["v4.channel.k8s.io"])
    with scheduler.app_sessions.open(app_id, "main", 0, ["head", "-n1"], stdin=True) as session:
        session.write(b"line\n")
        session.close_stdin()
        assert output_of(session) == b"line\n"
        assert session.wait() == 0
    assert "only Kubernetes 1.30 and later" in caplog.text


def test_a_missing_right_is_one_line(
    scheduler: KubernetesScheduler, app_id: str, double: Double
) -> None:
    double.deny("get", "pods/exec")
    with pytest.raises(BackendError, match=r"RBAC forbids .* to get pods/exec") as caught:
        scheduler.app_sessions.open(app_id, "main", 0, ["true"])
    assert "\n" not in str(caught.value)


def test_a_deleted_pod_ends_its_sessions(scheduler: KubernetesScheduler, app_id: str) -> None:
    with scheduler.app_sessions.open(
        app_id, "main", 0, ["sh", "-c", "echo on; sleep 86400"]
    ) as session:
        output = session.output()
        assert next(output)[1] == b"on\n"
        thread = threading.Thread(target=scheduler.delete, args=(app_id,))
        thread.start()
        assert list(output) == []
        try:
            outcome = str(session.wait())
        except BackendError as e:  # the connection may end before the status arrives
            outcome = str(e)
        assert outcome == "137" or "the pod may have been deleted" in outcome
        thread.join()


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
def test_a_container_that_has_ended_is_not_an_error_of_the_cluster(
    scheduler: KubernetesScheduler, image: str, double: Double, protocol: str
) -> None:
    """Check the races in which a pod ends after its state was read.

    With version 5 of the protocol, the API server accepts the connection, and then sends the
    node's refusal as the status of the command.
    """
    double.serve_sessions(protocols=["v4.channel.k8s.io", protocol])
    app_id = scheduler.submit(AppDef("inside", [shell("true", image=image)]), {})
    described(scheduler, app_id)
    (pod,) = double.objects("pods")
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]

    def run() -> int:
        with PodExec(
            scheduler._cluster_of(None), namespace, name, "main", ["true"], tty=None, stdin=False
        ) as session:
            assert output_of(session) == b""
            return session.wait()

    with pytest.raises(ReplicaNotRunningError, match=f"{name} does not run: .*container not found"):
        run()
    with pytest.raises(ReplicaNotRunningError, match="main/0 does not run: pod not found"):
        open_port(scheduler._cluster_of(None), namespace, name, "main/0", 80, set())
