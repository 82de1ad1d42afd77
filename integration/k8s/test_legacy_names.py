"""Tests of the names of ``torchx.schedulers`` for programs written for older TorchX releases."""

from __future__ import annotations

from typing import Any

from torchx.schedulers import kubernetes_mcad_scheduler as mcad
from torchx.schedulers import kubernetes_scheduler as k8s
from torchx_specs import AppDef, AppState, Resource, Role


def role(**fields: Any) -> Role:
    resource = Resource(cpu=1, gpu=0, memMB=100)
    return Role("main", "busybox:1", entrypoint="sh", resource=resource, num_replicas=2, **fields)


def test_legacy_functions_return_library_objects() -> None:
    one = role(args=["$(A)"], env={"P": "[FIELD_PATH]status.podIP"})
    pod = k8s.role_to_pod("main-0", one, service_account="sa")
    assert pod.spec.containers[0].name == "main-0"
    assert pod.spec.containers[0].env[0].value_from.field_ref.field_path == "status.podIP"
    assert pod.spec.service_account_name == "sa"
    k8s._apply_pod_overlay(pod, {"spec": {"nodeSelector": {"a": "b"}}})
    assert pod.spec.node_selector == {"a": "b"}
    plain: Any = k8s.sanitize_for_serialization({"pod": pod})
    assert plain["pod"]["spec"]["nodeSelector"] == {"a": "b"}
    resource = k8s.app_to_resource(AppDef("a", [one]), "q", None)
    assert resource["spec"]["tasks"][0]["replicas"] == 2
    assert k8s.normalize_str("-Ab_c1.x") == "abc1x"


def test_tables_and_labels_keep_their_names() -> None:
    assert k8s.JOB_STATE["Completed"] == k8s.TASK_STATE["Succeeded"] == AppState.SUCCEEDED
    assert k8s.pod_labels(AppDef("a"), 0, role(), 1, "a-1")[k8s.LABEL_REPLICA_ID] == "1"
    assert k8s.PLACEHOLDER_FIELD_PATH == "[FIELD_PATH]"
    assert (k8s.RESERVED_MILLICPU, k8s.RESERVED_MEMMB) == (100, 1024)


def test_functions_of_mcad_for_older_programs() -> None:
    one = role(args=["-c", "true"])
    app = AppDef("a", [one])
    assert mcad.cleanup_str("1Ab-") == "ab-"
    assert mcad.mcad_svc(app, "svc", "ns", "80").spec.ports[0].port == 80
    assert mcad.get_port_for_service(app) == "29500"
    pod = mcad.role_to_pod("n", "app", "ns", one, None, "sec", "co", None, "net")
    assert (pod.spec.hostname, pod.spec.subdomain) == ("n", "app")
    assert pod.spec.image_pull_secrets[0].name == "sec"
    assert mcad.get_appwrapper_status({"metadata": {}}) == AppState.PENDING
    wrapper = mcad.app_to_resource(app, "ns", None, None, None, None, None)
    found = mcad.get_role_information(wrapper["spec"]["resources"]["GenericItems"])["main"]
    assert (found.num_replicas, found.args) == (2, ["-c", "true"])
