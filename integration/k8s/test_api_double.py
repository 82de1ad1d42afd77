"""Tests of the Kubernetes double's API with the real client: objects, refusals and discovery."""

from __future__ import annotations

import json
from typing import Any

import pytest
from double_client import ApiException, Client, job, pod
from k8s_double.handle import Double

from patience import wait_for

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
def k8s(double: Double) -> Client:
    return Client(str(double.path))


def refusal(caught: pytest.ExceptionInfo[ApiException]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(caught.value.body)
    assert found["kind"] == "Status"
    assert found["code"] == caught.value.status
    return found


def test_a_dry_run_creates_nothing(k8s: Client, double: Double) -> None:
    made = k8s.batch.create_namespaced_job("default", job("one"), dry_run="All")
    assert made.metadata.uid
    assert double.left() == []


def spec(change: dict[str, Any], template: dict[str, Any] | None = None) -> dict[str, Any]:
    found = job("one")
    found["spec"] |= change
    found["spec"]["template"]["spec"] |= template or {}
    return found


def main(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "busybox:local", **fields}]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (spec({}, {"restartPolicy": "Always"}), 'Unsupported value: "Always"'),
        (spec({"completions": None}), "spec.completions: Required value: when completion mode"),
        (spec({}, main(name="Bad_Name")), "a lowercase RFC 1123 label must consist of"),
        (spec({}, {"containers": []}), "spec.template.spec.containers: Required value"),
        (
            spec({}, main(env=[{"name": "A=B", "value": "x"}])),
            "a valid environment variable name must consist only of printable ASCII",
        ),
        (
            spec({}, main(volumeMounts=[{"name": "none", "mountPath": "/x"}])),
            'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "none"',
        ),
        (
            spec({}, main(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})),
            'requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            spec({}, main(resources={"limits": {"memory": "much"}})),
            "quantities must match the regular expression",
        ),
        (
            spec({}, main(resources={"requests": {"nvidia.com/gpu": "1"}})),
            "Limit must be set for non overcommitable resources",
        ),
        (
            spec({}, main(ports=[{"name": "a-very-long-port-name", "containerPort": 80}])),
            "must be no more than 15 characters",
        ),
        (
            spec({"completionMode": "NonIndexed", "backoffLimitPerIndex": 1}),
            "requires indexed completion mode",
        ),
        (
            spec({"podFailurePolicy": {"rules": [{"action": "FailJob"}]}}),
            "specifying one of OnExitCodes and OnPodConditions is required",
        ),
        (
            spec(
                {
                    "podFailurePolicy": {
                        "rules": [
                            {
                                "action": "FailIndex",
                                "onExitCodes": {"operator": "In", "values": [3]},
                            }
                        ]
                    }
                }
            ),
            "requires the backoffLimitPerIndex to be set",
        ),
        (
            {**job("one"), "metadata": {"name": "x" * 63}},
            "will not able to create pod with invalid DNS label",
        ),
        (
            {**job("one"), "metadata": {"name": "one", "labels": {"a": ".b"}}},
            "a valid label must be an empty string or consist of alphanumeric characters",
        ),
    ],
)
def test_invalid_objects_are_refused_with_the_field(
    k8s: Client, body: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiException) as caught:
        k8s.batch.create_namespaced_job("default", body)
    found = refusal(caught)
    assert (found["code"], found["reason"]) == (422, "Invalid")
    assert words in found["message"]
    assert found["details"]["causes"]


def test_a_wrong_type_is_refused_by_the_decoder(k8s: Client) -> None:
    body = spec({}, main(env=[{"name": "A", "value": 1}]))
    code, answer, _ = k8s.raw("POST", JOBS, body)
    assert (code, answer["reason"]) == (400, "BadRequest")
    assert answer["message"] == (
        'Job in version "v1" cannot be handled as a Job: json: cannot unmarshal number into Go'
        " struct field EnvVar.spec.template.spec.containers.env.value of type string"
    )


def test_an_unknown_field_is_refused(k8s: Client, double: Double) -> None:
    body = spec({"replicas": 3})
    code, answer, _ = k8s.raw("POST", f"{JOBS}?fieldValidation=Strict", body)
    assert code == 400
    assert 'strict decoding error: unknown field "spec.replicas"' in answer["message"]
    code, _, headers = k8s.raw("POST", JOBS, body)
    assert code == 201
    assert headers["Warning"] == '299 - "unknown field \\"spec.replicas\\""'
    assert double.warnings() == ['unknown field "spec.replicas"']
    assert "replicas" not in double.objects("jobs.batch")[0]["spec"]


def test_missing_credentials_and_missing_rights_are_refused(k8s: Client, double: Double) -> None:
    stranger = Client(double.kubeconfig("stranger", style="none"))
    with pytest.raises(ApiException) as caught:
        stranger.pods("one")
    assert refusal(caught)["reason"] == "Unauthorized"
    double.deny("create", "jobs", namespace="default")
    with pytest.raises(ApiException) as caught:
        k8s.job("one")
    assert refusal(caught)["message"] == (
        'jobs.batch is forbidden: User "double-user" cannot create resource "jobs" in API group'
        ' "batch" in the namespace "default"'
    )


def test_a_missing_namespace_is_an_error(k8s: Client) -> None:
    with pytest.raises(ApiException) as caught:
        k8s.batch.create_namespaced_job("nowhere", job("one"))
    assert refusal(caught)["message"] == 'namespaces "nowhere" not found'
    assert k8s.core.list_namespaced_pod("nowhere").items == []


def test_webhooks_and_faults_refuse_requests(k8s: Client, double: Double) -> None:
    double.webhook("policy.example.com", "images must come from registry.example.com")
    with pytest.raises(ApiException) as caught:
        k8s.job("one")
    assert refusal(caught)["message"] == (
        'admission webhook "policy.example.com" denied the request: images must come from'
        " registry.example.com"
    )
    for code in (429, 500, 503):
        double.fault(code, method="GET", path="/pods", retry_after=1)
        found, answer, headers = k8s.raw("GET", "/api/v1/namespaces/default/pods")
        assert (found, answer["code"]) == (code, code)
        assert headers["Retry-After"] == "1"
        assert k8s.pods("one") == []


def test_large_objects_are_refused(k8s: Client) -> None:
    for size, code in ((2 << 20, 500), (4 << 20, 413)):
        with pytest.raises(ApiException) as caught:
            k8s.batch.create_namespaced_job("default", job("one", "x" * size))
        assert refusal(caught)["code"] == code
        assert "too large" in refusal(caught)["message"]


def test_patches_are_merged(k8s: Client) -> None:
    k8s.job("one", suspend=True)
    patch = {"metadata": {"annotations": {"a": "1", "b": "2"}}}
    found = k8s.batch.patch_namespaced_job("one", "default", patch)
    assert found.metadata.annotations == {"a": "1", "b": "2"}
    patch = {"metadata": {"annotations": {"a": None}}}
    assert k8s.raw("PATCH", f"{JOBS}/one", patch, "application/merge-patch+json")[0] == 200
    assert k8s.raw("PATCH", f"{JOBS}/one", patch, "application/unheard-of")[0] == 415
    assert k8s.batch.read_namespaced_job("one", "default").metadata.annotations == {"b": "2"}
    operations = [{"op": "replace", "path": "/metadata/annotations/b", "value": "3"}]
    _, answer, _ = k8s.raw("PATCH", f"{JOBS}/one", operations, "application/json-patch+json")
    assert answer["metadata"]["annotations"] == {"b": "3"}
    with pytest.raises(ApiException) as caught:
        k8s.batch.patch_namespaced_job("one", "default", {"spec": {"completions": 7}})
    assert "spec.completions: Invalid value" in refusal(caught)["message"]
    assert "field is immutable" in refusal(caught)["message"]
    stale = k8s.batch.read_namespaced_job("one", "default")
    k8s.batch.patch_namespaced_job("one", "default", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ApiException) as caught:
        k8s.batch.replace_namespaced_job("one", "default", stale)
    assert refusal(caught)["reason"] == "Conflict"


def test_pods_of_a_job_that_is_deleted_without_a_policy_stay(k8s: Client, double: Double) -> None:
    k8s.job("one", "sleep 86400")
    wait_for(lambda: k8s.pods("one"))
    k8s.batch.delete_namespaced_job("one", "default")
    assert "propagationPolicy=Background" in double.warnings()[0]
    left = wait_for(lambda: [p for p in k8s.pods("one") if not p.metadata.owner_references])
    assert left[0].metadata.deletion_timestamp is None


def test_selectors(k8s: Client) -> None:
    for i in range(3):
        body = pod(f"pod-{i}", "sleep 86400")
        body["metadata"]["labels"] = {"n": str(i), **({"odd": ""} if i == 1 else {})}
        k8s.core.create_namespaced_pod("default", body)

    def names(**selectors: str) -> list[str]:
        found = k8s.core.list_namespaced_pod("default", **selectors).items
        return [p.metadata.name[-1] for p in found]

    assert names(label_selector="n!=1") == ["0", "2"]
    assert names(label_selector="odd") == ["1"]
    assert names(label_selector="!odd,n in (0,1)") == ["0"]
    assert names(label_selector="n notin (0)") == ["1", "2"]
    assert names(field_selector="metadata.name=pod-2") == ["2"]
    wait_for(lambda: names(field_selector="status.phase=Running") == ["0", "1", "2"])
    with pytest.raises(ApiException) as caught:
        names(field_selector="spec.hostname=x")
    assert refusal(caught)["message"] == 'field label not supported: "spec.hostname"'


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            {"rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": []}]},
            "rules[0].verbs: Required value: verbs must contain at least one value",
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            {"data": {"a b": "x"}},
            'data[a b]: Invalid value: "a b": a valid config key must consist of',
        ),
        (
            "/api/v1/namespaces/default/configmaps",
            {"data": {"a": "x" * 1024 * 1024, "b": "x"}},
            "Too long",
        ),
    ],
)
def test_roles_and_config_maps_are_checked(
    k8s: Client, path: str, body: dict[str, Any], words: str
) -> None:
    code, told, _ = k8s.raw("POST", path, {"metadata": {"name": "x"}, **body})
    assert code == 422
    assert words in told["message"]
