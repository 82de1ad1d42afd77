"""Tests of the scheduler ``kubernetes_mcad``: requests, states, options and older functions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import kubernetes_validate
import pytest

from torchx_sched_k8s.status.describe import described_role
from torchx_sched_mcad import checks
from torchx_sched_mcad import scheduler as mcad
from torchx_sched_mcad.appwrapper import APPWRAPPER
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.errors import RequestError
from torchx_specs.overlays import set_overlay

# This name stands for a class of conftest.py, which tests cannot import.
ApiDouble = Any

P, R, S, F = AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED, AppState.FAILED
REVIEWS = "/selfsubjectaccessreviews"
MINUTE = "2026-01-02T03:{:02}:00Z"


def role(**words: Any) -> Role:
    return Role(**{"name": "main", "image": "busybox:1", "entrypoint": "sh", **words})


def dryrun(app: AppDef, **cfg: Any) -> Any:
    return mcad.create_scheduler("t").submit_dryrun(app, cfg)


def items(app: AppDef, **cfg: Any) -> list[dict[str, Any]]:
    spec = dryrun(app, **cfg).request.resource["spec"]
    return [item["generictemplate"] for item in spec["resources"]["GenericItems"]]


def minutes(*times: Any) -> list[int]:
    return [time.minute for time in times]


def test_mcad_wraps_pods_and_service() -> None:
    first = role(name="a", num_replicas=2, max_retries=2, port_map={"web": 80})
    second = role(name="b", max_retries=1, resource=Resource(cpu=1, gpu=0, memMB=2048))
    cfg = {
        "priority": 3,
        "coscheduler_name": "co",
        "image_secret": "pull",
        "network": "net",
        "priority_class_name": "high",
    }
    info = mcad.create_scheduler("t").submit_dryrun(AppDef("My_app", [first, second]), cfg)
    found = info.request.resource
    name = found["metadata"]["name"]
    assert re.match(r"myapp-[a-z0-9]+\Z", name)
    assert (found["apiVersion"], found["kind"]) == ("workload.codeflare.dev/v1beta1", "AppWrapper")
    assert found["metadata"]["namespace"] == "default"
    assert found["spec"]["priority"] == 3
    assert found["spec"]["schedulingSpec"] == {
        "minAvailable": 3,
        "requeuing": {
            "timeInSeconds": 300,
            "maxTimeInSeconds": 0,
            "growthType": "exponential",
            "maxNumRequeuings": 1,
        },
    }
    items = [one["generictemplate"] for one in found["spec"]["resources"]["GenericItems"]]
    assert [(one["kind"], one["metadata"]["name"]) for one in items] == [
        ("PodGroup", f"{name}-pg0"),
        ("PodGroup", f"{name}-pg1"),
        ("Pod", f"{name}-0"),
        ("Pod", f"{name}-1"),
        ("Pod", f"{name}-1-0"),
        ("Service", name),
    ]
    assert items[0]["spec"] == {"minMember": 2}
    pod = items[2]
    assert pod["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"] == f"{name}-pg0"
    assert pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "net"
    spec = pod["spec"]
    assert (spec["hostname"], spec["subdomain"]) == (f"{name}-0", name)
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("co", "high")
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert items[4]["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "900m",
        "memory": "1024M",
    }
    assert items[5]["spec"]["ports"] == [{"protocol": "TCP", "port": 80, "targetPort": 80}]
    assert items[5]["spec"]["selector"] == {"app.kubernetes.io/instance": name}


@pytest.mark.parametrize(
    ("name", "variable"),
    [("main", "TORCHX_MCAD_MAIN_0_HOSTS"), ("tr-ain er.1", "TORCHX_MCAD_TRAINER1_0_HOSTS")],
)
def test_mcad_pods_have_the_host_variable_of_the_first_role(name: str, variable: str) -> None:
    app = AppDef("app", [role(name=name, num_replicas=2), role(name="other")])
    wrapper = mcad.create_scheduler("test").submit_dryrun(app, {}).request.resource
    items = [i["generictemplate"] for i in wrapper["spec"]["resources"]["GenericItems"]]
    pods = [item for item in items if item["kind"] == "Pod"]
    assert len(pods) == 3
    host = f"{pods[0]['spec']['hostname']}.{pods[0]['spec']['subdomain']}"
    for pod in pods:
        env = pod["spec"]["containers"][0]["env"]
        for known in ("TORCHX_RANK0_HOST", variable):
            assert [one["value"] for one in env if one["name"] == known] == [host]
    own = {variable: "mine"}
    app = AppDef("app", [role(name=name, env=own)])
    wrapper = mcad.create_scheduler("test").submit_dryrun(app, {}).request.resource
    item = wrapper["spec"]["resources"]["GenericItems"][0]["generictemplate"]
    env = item["spec"]["containers"][0]["env"]
    assert [one["value"] for one in env if one["name"] == variable] == ["mine"]


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("Pending", P),
        ("Running", R),
        ("Completed", S),
        ("Failed", F),
        ("Deleted", AppState.CANCELLED),
        ("Invented", AppState.UNKNOWN),
    ],
)
def test_states_of_appwrappers(word: str, state: AppState) -> None:
    found = {"metadata": {"name": "a"}, "spec": {}, "status": {"state": word}}
    assert APPWRAPPER.view("a", [found]).state == state
    assert APPWRAPPER.view("a", [{"metadata": {}}]).state == P


def test_an_appwrapper_has_the_times_of_its_conditions() -> None:
    conditions = [
        {"type": "Running", "status": "True", "lastTransitionMicroTime": "2026-01-02T03:04:05.6Z"},
        {"type": "Completed", "status": "True", "lastTransitionMicroTime": MINUTE.format(7)},
    ]
    wrapper = {"metadata": {}, "status": {"state": "Completed", "conditions": conditions}}
    view = APPWRAPPER.view("app", [wrapper])
    assert minutes(view.started, view.ended) == [4, 7]


def test_a_missing_api_is_named_with_its_version(api: ApiDouble) -> None:
    role = Role("main", "busybox:1", entrypoint="true")
    with pytest.raises(RequestError, match="not installed in this cluster in the version v1beta1"):
        mcad.create_scheduler("t").submit(AppDef("app", [role]), {})


def test_pods_match_the_schema() -> None:
    app = AppDef("a", [role(num_replicas=2, port_map={"web": 80})])
    for item in items(app, coscheduler_name="co", network="net", image_secret="s"):
        if item["apiVersion"] == "v1":
            kubernetes_validate.validate(item, "1.32", strict=True)


def test_secrets_in_metadata_are_masked_when_shown() -> None:
    app = AppDef("a", [role()], {"HF_TOKEN": "s3cret", "team": "x", "url": "https://s3cret@h"})
    info = dryrun(app)
    assert "s3cret" not in str(info)
    assert "s3cret" in json.dumps(info.request.objects)


@pytest.mark.parametrize("name", ["x" * 200, "\u00fcml\u00e4ut", "1", "../up", ""])
def test_names_are_valid_for_any_app(name: str) -> None:
    found = items(AppDef(name, [role(num_replicas=1000), role(name="y" * 200)]))
    names = [item["metadata"]["name"] for item in found]
    assert len(max(names, key=len)) <= 63
    assert len(set(names[:-1])) == len(names) - 1
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", one) for one in names)


def test_pods_refer_to_secrets() -> None:
    info = dryrun(AppDef("a", [role(env={"TOKEN": "${secret:hf}"})]))
    assert "secretKeyRef" in str(info)
    assert "${secret" not in json.dumps(info.request.resource)


def test_ignored_overlays_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {"hostPID": True}})
    dryrun(AppDef("app", [one]))
    assert caplog.text.count("kubernetes_mcad supports none") == 1


def test_roles_are_read_from_an_appwrapper() -> None:
    app = AppDef("a", [role(args=["-c", "true"], num_replicas=2)])
    (found,) = APPWRAPPER.view("a", [dryrun(app).request.resource]).roles
    assert (found.name, found.replicas) == ("main", 2)
    assert described_role(found).args == ["-c", "true"]


def test_list_and_submit_use_the_same_namespace(api: ApiDouble) -> None:
    assert mcad.create_scheduler("t").list() == []
    assert [request.path for request in api.requests][:1] == [
        "/apis/workload.codeflare.dev/v1beta1/namespaces/team/appwrappers"
    ]
    assert dryrun(AppDef("app", [role()])).request.namespace == "team"


def test_checks_name_what_is_missing(api: ApiDouble) -> None:
    api.answer("GET", "/apis", {"groups": []})
    api.answer("POST", REVIEWS, (201, {"status": {"allowed": False}}))
    (operator,) = checks.check_mcad({})
    assert "AppWrapper is not installed" in operator.message
    texts = [result.message for result in checks.check_mcad_rights({})]
    assert any("appwrappers" in text for text in texts)


def test_every_option_has_a_help_text() -> None:
    opts = dict(mcad.create_scheduler("t").run_opts())
    assert {"coscheduler_name", "network"} <= opts.keys()
    assert all(opt.help and opt.help != name for name, opt in opts.items())


def test_a_dry_run_imports_no_client_library() -> None:
    code = (
        "import sys; from torchx_specs import AppDef, Role\n"
        "from torchx_sched_mcad.scheduler import create_scheduler as m\n"
        "str(m('t').submit_dryrun(AppDef('a', [Role('r', 'i', entrypoint='e')]), {}))\n"
        "print(sorted({'kubernetes', 'urllib3', 'docker', 'requests'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_cancel_keeps_an_ended_app_of_mcad(api: ApiDouble) -> None:
    wrapper = {"metadata": {"name": "app-x"}, "status": {"state": "Completed"}}
    api.answer("GET", "/appwrappers/app-x", wrapper, {**wrapper, "status": {}})
    api.answer("GET", "/pods", {"items": []})
    api.answer("DELETE", "/appwrappers/app-x", {})
    scheduler = mcad.create_scheduler("t")
    scheduler.cancel("team:app-x")
    assert {request.method for request in api.requests} == {"GET"}
    scheduler.cancel("team:app-x")
    assert api.requests[-1].method == "DELETE"
