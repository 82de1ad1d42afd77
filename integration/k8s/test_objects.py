"""Tests of the objects that ``kubernetes`` creates with ``job_api=batch``, on the double.

Other tests of this module wait for changes of an app, and use client certificates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s_apps import IMAGE, PYTHON, app, shell
from k8s_double.handle import Double
from waiting import described

from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import (
    AppState,
)
from torchx_specs.errors import BackendError
from torchx_specs.overlays import set_overlay


def test_a_sidecar_does_not_keep_a_replica_running(scheduler: KubernetesScheduler) -> None:
    job = app("sleep 0.3; echo ours")
    beside = {"name": "beside", "image": IMAGE, "command": ["sh", "-c", "echo beside; exit 0"]}
    set_overlay(job.roles[0], "kubernetes", "V1Pod", {"spec": {"containers": [beside]}})
    app_id = scheduler.submit(job, {})
    found = described(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert found.roles_statuses[0].replicas[0].exit_code == 0
    assert list(scheduler.log_iter(app_id, "main", should_tail=True)) == ["ours\n"]


def test_a_success_policy_ends_a_role_with_a_pending_replica(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    index = {"batch.kubernetes.io/job-completion-index": "1"}
    double.play("unschedulable", labels=index)
    role = shell("true", num_replicas=2)
    policy = {"rules": [{"succeededCount": 1}]}
    set_overlay(role, "kubernetes", "V1Job", {"spec": {"successPolicy": policy}})
    app_id = scheduler.submit(app(role), {})
    assert described(scheduler, app_id).state == AppState.SUCCEEDED


def test_the_native_request_can_be_submitted_again(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app("true"), {})
    native = scheduler.describe_native(app_id)
    assert native is not None
    assert "Job" in {one["kind"] for one in native.request.objects}
    assert "restartPolicy: Never" in str(native)


@pytest.mark.filterwarnings("error:Unverified HTTPS")
@pytest.mark.parametrize("how", ["no authority", "not checked"])
def test_client_certificates_are_used(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
) -> None:
    config = yaml.safe_load(double.path.read_text())
    cluster = config["clusters"][0]["cluster"]
    del cluster["certificate-authority"]
    if how == "not checked":
        cluster["insecure-skip-tls-verify"] = True
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    scheduler = create_scheduler("x")
    if how == "not checked":
        assert scheduler.list() == []
        return
    scheduler._cluster_of(None).sleep = (pauses := []).append
    with pytest.raises(BackendError, match=r"(?i)certificate") as caught:
        scheduler.list()
    assert "\n" not in str(caught.value)
    assert pauses == []


def test_pods_meet_the_restricted_pod_security_standard(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.namespace("locked", {"pod-security.kubernetes.io/enforce": "restricted"})
    cfg: dict[str, Any] = {"namespace": "locked", "volumes": ["emptyDir:/scratch:1Gi"]}
    refused = scheduler.submit(app("true"), cfg)
    waiting = described(scheduler, refused, lambda d: "PodSecurity" in d.msg)
    assert 'violates PodSecurity "restricted:latest"' in waiting.msg
    scheduler.delete(refused)
    for more in ({}, {"retry_policy": "APPLICATION"}):
        roles = [shell("true", image=PYTHON), shell("true", "other", image=PYTHON)]
        app_id = scheduler.submit(app(*roles), {**cfg, "pod_security": "restricted", **more})
        assert described(scheduler, app_id).state == AppState.SUCCEEDED
        scheduler.delete(app_id)
