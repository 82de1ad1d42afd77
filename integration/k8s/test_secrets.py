"""Tests of secret references on the Kubernetes double, whose node reads Secret objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from k8s_apps import PYTHON, app, described, reason, shell
from k8s_double.handle import Double

from torchx_sched_k8s.mcad import scheduler as mcad_scheduler
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppState, secret

VOLCANO = "jobs.batch.volcano.sh"
MCAD = "appwrappers.workload.codeflare.dev"
JOBSET = "jobsets.jobset.x-k8s.io"

SUPERVISED = {"retry_policy": "APPLICATION", "restarts_image": PYTHON}
ENV = {"HF_TOKEN": secret("hf"), "PASSWORD": secret("hf", "pass.word")}


def create_secret(double: Double) -> None:
    data = {"HF_TOKEN": "p4ss $(A) 1", "pass.word": "p4ss 2"}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf"}, "stringData": data}
    double.create("secrets", "default", body)


@pytest.mark.parametrize(
    ("kind", "cfg"),
    [
        ("", {}),
        ("", SUPERVISED),
        (VOLCANO, {"queue": "default"}),
        (JOBSET, {"job_api": "jobset"}),
        (MCAD, {}),
    ],
)
def test_the_program_receives_the_value_and_no_object_contains_it(
    double: Double, kind: str, cfg: dict[str, Any]
) -> None:
    create = mcad_scheduler.create_scheduler if kind == MCAD else create_scheduler
    scheduler = create("test")
    if kind:
        double.play_operator(kind, pods=True)
    create_secret(double)
    code = 'printf "%s|%s" "$HF_TOKEN" "$PASSWORD" | sha256sum'
    app_id = scheduler.submit(app(shell(code, num_replicas=2, env=ENV, max_retries=1)), cfg)
    found = described(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED, found
    expected = "cb62df5fb3eefa0d"
    for k in range(2):
        assert "".join(scheduler.log_iter(app_id, "main", k)).startswith(expected)
    assert {name: found.roles[0].env[name] for name in ENV} == ENV
    assert "p4ss" not in repr(found)
    native = scheduler.describe_native(app_id)
    assert "p4ss" not in json.dumps(getattr(native, "request", None), default=repr)
    scheduler.delete(app_id)
    scheduler.close()


def test_status_shows_a_missing_secret_and_a_missing_key(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app(shell("true", env={"A": secret("hf", "absent")})), {})
    words = 'CreateContainerConfigError: secret "hf" not found'
    found = described(scheduler, app_id, lambda d: words in reason(d))
    assert found.state == AppState.PENDING
    create_secret(double)
    described(scheduler, app_id, lambda d: "couldn't find key absent in Secret" in reason(d))
