"""Tests of secret references, which become references to Secrets in the objects of every API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_sched_k8s.status.describe import described_role
from torchx_sched_k8s.status.views import RoleView
from torchx_specs import AppDef, RequestError, Role, secret
from torchx_specs.overlays import set_overlay

ENV = {"HF_TOKEN": secret("hf"), "DB_PASSWORD": secret("db", "pass.word"), "A": "b"}
VARIABLES = [
    {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "HF_TOKEN"}}},
    {"name": "DB_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "pass.word"}}},
    {"name": "A", "value": "b"},
]


def role(**fields: Any) -> Role:
    return Role(**{"name": "main", "image": "i:1", "entrypoint": "sh", "env": ENV, **fields})


def pods(value: Any) -> list[dict[str, Any]]:
    """Return the specs of all pods in an object."""
    if isinstance(value, list):
        return [pod for item in value for pod in pods(item)]
    if not isinstance(value, dict):
        return []
    own = [value] if "containers" in value else []
    return own + [pod for item in value.values() for pod in pods(item)]


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
def test_pods_of_every_api_refer_to_secrets(cfg: dict[str, Any]) -> None:
    info = create_scheduler("t").submit_dryrun(AppDef("a", [role(num_replicas=2)]), cfg)
    resource = info.request.objects
    found = pods(resource)
    assert found
    for pod in found:
        env = pod["containers"][0]["env"]
        assert [one for one in env if one["name"] in ENV] == VARIABLES
        described = described_role(RoleView(0, "main", 2, {"spec": pod}))
        assert {name: described.env[name] for name in ENV} == ENV
    assert "***" not in str(info)
    assert "secretKeyRef" in str(info)
    assert "${secret" not in json.dumps(resource)


def test_containers_of_an_overlay_may_refer_to_secrets() -> None:
    one = role()
    variable = {"name": "TOKEN", "value": secret("hf")}
    overlay = {"spec": {"initContainers": [{"name": "get", "image": "i", "env": [variable]}]}}
    set_overlay(one, "kubernetes", "V1Pod", overlay)
    info = create_scheduler("t").submit_dryrun(AppDef("a", [one]), {})
    (pod,) = pods(info.request.objects)
    source = {"secretKeyRef": {"name": "hf", "key": "TOKEN"}}
    assert pod["initContainers"][0]["env"] == [{"name": "TOKEN", "valueFrom": source}]


def test_a_reference_elsewhere_in_an_overlay_is_refused() -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {"hostname": secret("hf")}})
    runner = Runner("t", {"kubernetes": create_scheduler})
    with pytest.raises(RequestError, match=r"\['hostname'\] contains \$\{secret:hf\}"):
        runner.dryrun(AppDef("a", [one]), "kubernetes")


def test_a_secret_with_another_grammar_is_left_out_of_the_description() -> None:
    source = {"secretKeyRef": {"name": "7", "key": "k"}}
    template = {"spec": {"containers": [{"env": [{"name": "A", "valueFrom": source}]}]}}
    assert described_role(RoleView(0, "main", 1, template)).env == {}
