"""Tests of secret references on the Kubernetes double, whose node reads Secret objects."""

from __future__ import annotations

from k8s_apps import app, reason, shell
from k8s_double.handle import Double
from waiting import described

from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState, secret


def create_secret(double: Double) -> None:
    data = {"HF_TOKEN": "p4ss $(A) 1", "pass.word": "p4ss 2"}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf"}, "stringData": data}
    double.create("secrets", "default", body)


def test_status_shows_a_missing_secret_and_a_missing_key(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app(shell("true", env={"A": secret("hf", "absent")})), {})
    words = 'CreateContainerConfigError: secret "hf" not found'
    found = described(scheduler, app_id, lambda d: words in reason(d))
    assert found.state == AppState.PENDING
    create_secret(double)
    described(scheduler, app_id, lambda d: "couldn't find key absent in Secret" in reason(d))
