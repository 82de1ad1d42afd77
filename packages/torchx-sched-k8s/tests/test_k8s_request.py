"""Tests of the requests, which are made without a cluster, and of the options."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from torchx_sched_k8s.cluster import labels as labels_module
from torchx_sched_k8s.request.pods import MountTypeError, escape
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import (
    AppDef,
    BindMount,
    DeviceMount,
    InvalidRunConfigException,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    macros,
)
from torchx_specs.errors import RequestError
from torchx_specs.overlays import DEL, JOIN, PUT, set_overlay

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][A-Za-z0-9_.-]*)?[A-Za-z0-9])?\Z")


@pytest.fixture
def scheduler() -> KubernetesScheduler:
    return create_scheduler("test", unknown="ignored")


def role(**words: Any) -> Role:
    return Role(**{"name": "main", "image": "busybox:1", "entrypoint": "sh", **words})


def objects(*roles: Role, app: str = "app", **cfg: Any) -> list[dict[str, Any]]:
    info = create_scheduler("test").submit_dryrun(AppDef(app, list(roles)), cfg)
    found: list[dict[str, Any]] = info.request.objects
    return found


def job(*roles: Role, **cfg: Any) -> dict[str, Any]:
    return objects(*roles, **cfg)[1]


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]
    return found


def main_of(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(job)["containers"][0]
    return found


def everything() -> AppDef:
    trainer = role(
        name="trainer",
        args=["-c", f"echo {macros.replica_id} of {macros.app_id} at $${macros.rank0_env}"],
        env={"NODE": "[FIELD_PATH]spec.nodeName", "A": "$(A) b", "WANDB_KEY": "very"},
        num_replicas=3,
        min_replicas=2,
        max_retries=2,
        retry_policy=RetryPolicy.REPLICA,
        resource=Resource(
            cpu=8,
            gpu=2,
            memMB=64_000,
            capabilities={"node.kubernetes.io/instance-type": "p4d.24xlarge"},
            devices={"vpc.amazonaws.com/efa": 4},
        ),
        port_map={"tensor_board": 6006, "http": 80},
        mounts=[
            BindMount("/data", "/mnt/data", read_only=True),
            VolumeMount("claim", "/mnt/claim"),
            DeviceMount("/dev/fuse", "/dev/fuse", "r"),
        ],
    )
    reader = role(name="reader", resource=Resource(cpu=1, gpu=0, memMB=100))
    return AppDef("My App_1", [trainer, reader], {"team": "vision"})


OPTIONS: dict[str, Any] = {
    "namespace": "team",
    "service_account": "runner",
    "priority_class": "high",
    "image_secret": "pull",
    "image_pull_policy": "IfNotPresent",
    "ttl_seconds": 60,
    "time": "90s",
    "node_selector": {"zone": "a"},
    "tolerations": ["gpu=yes:NoSchedule", "spot"],
    "affinity": '{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":'
    ' [{"topologyKey": "kubernetes.io/hostname"}]}}',
    "labels": {"team": "vision"},
    "annotations": {"note": "\u00fc b"},
    "env_from": ["secret/all", "configmap/settings"],
    "env_secrets": {"TOKEN": "one/key.txt"},
    "env_config_maps": {"MODE": "two/mode"},
    "volumes": ["secret/ssh:/etc/ssh-keys"],
    "fail_together": False,
}


@pytest.mark.parametrize("version", ["1.32", "1.37"])
def test_manifests_match_the_published_schemas(version: str) -> None:
    info = create_scheduler("test").submit_dryrun(everything(), OPTIONS)
    documents = list(yaml.safe_load_all(str(info)))
    assert [one["kind"] for one in documents] == ["Service", "Job", "Job"]
    for one in documents:
        kubernetes_validate.validate(one, version, strict=True)
    documents[1]["spec"]["complesions"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[1], version, strict=True)


def test_pods_of_every_api_match_the_schema() -> None:
    def check(template: dict[str, Any]) -> None:
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        kubernetes_validate.validate(pod, "1.32", strict=True)

    options = dict(OPTIONS)
    (jobset,) = objects(*everything().roles, **options, job_api="jobset")
    for one in jobset["spec"]["replicatedJobs"]:
        kubernetes_validate.validate(
            {"apiVersion": "batch/v1", "kind": "Job", **one["template"]}, "1.32", strict=True
        )
        check(one["template"]["spec"]["template"])
    (volcano,) = objects(*everything().roles, **options, queue="q")
    for task in volcano["spec"]["tasks"]:
        check(task["template"])


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
def test_the_time_limit_is_a_field_of_each_pod(cfg: dict[str, Any]) -> None:
    found = str(objects(*everything().roles, time="1h30m", fail_together=False, **cfg))
    assert (
        found.count("'activeDeadlineSeconds': 5400") == found.count("'restartPolicy': 'Never'") > 1
    )
    assert "activeDeadline" not in str(objects(*everything().roles, fail_together=False, **cfg))


def test_a_role_is_one_indexed_job() -> None:
    info = create_scheduler("test").submit_dryrun(
        everything(), {"namespace": "team", "fail_together": False}
    )
    service, trainer, reader = info.request.objects
    app_id = service["metadata"]["name"]
    assert info.request.name == app_id
    assert re.match(r"my-app-1-[a-z0-9]{11,14}\Z", app_id)
    assert trainer["metadata"]["name"] == f"{app_id}-trainer"
    assert reader["metadata"]["name"] == f"{app_id}-reader"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {
            "app.kubernetes.io/managed-by": "torchx.pytorch.org",
            "app.kubernetes.io/instance": app_id,
        },
    }
    spec = dict(trainer["spec"])
    template = spec.pop("template")
    assert spec == {
        "completionMode": "Indexed",
        "completions": 3,
        "parallelism": 3,
        "backoffLimitPerIndex": 2,
        "maxFailedIndexes": 1,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }
            ]
        },
    }
    labels = template["metadata"]["labels"]
    assert labels == {
        labels_module.LABEL_VERSION: labels[labels_module.LABEL_VERSION],
        labels_module.LABEL_APP_NAME: "My-App_1",
        labels_module.LABEL_ROLE_INDEX: "0",
        labels_module.LABEL_ROLE_NAME: "trainer",
        labels_module.LABEL_KUBE_APP_NAME: "My-App_1",
        labels_module.LABEL_ORGANIZATION: "torchx.pytorch.org",
        labels_module.LABEL_UNIQUE_NAME: app_id,
    }
    for one in info.request.objects:
        assert one["metadata"]["labels"][labels_module.LABEL_UNIQUE_NAME] == app_id
        assert one["metadata"]["annotations"]["torchx.pytorch.org/app-name"] == "My App_1"
        told = json.loads(one["metadata"]["annotations"]["torchx.pytorch.org/metadata"])
        assert told == {"team": "vision"}
    pod = template["spec"]
    assert (pod["restartPolicy"], pod["subdomain"]) == ("Never", app_id)
    assert pod["nodeSelector"] == {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    assert pod["volumes"] == [
        {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "64000M"}},
        {"name": "mount-0", "hostPath": {"path": "/data"}},
        {"name": "mount-1", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "mount-2", "hostPath": {"path": "/dev/fuse"}},
    ]
    (main,) = pod["containers"]
    rank0 = f"{app_id}-trainer-0.{app_id}"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert main == {
        "name": "trainer",
        "image": "busybox:1",
        "command": [
            "sh",
            "-c",
            f"echo $(TORCHX_REPLICA_ID) of {app_id} at $TORCHX_RANK0_HOST",
        ],
        "env": [
            {"name": "TORCHX_REPLICA_ID", "valueFrom": {"fieldRef": {"fieldPath": index}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "A", "value": "$$(A) b"},
            {"name": "WANDB_KEY", "value": "very"},
            {"name": "TORCHX_RANK0_HOST", "value": rank0},
            {"name": "TORCHX_IMAGE", "value": "busybox:1"},
        ],
        "resources": {
            "limits": {
                "cpu": "8000m",
                "memory": "64000M",
                "nvidia.com/gpu": "2",
                "vpc.amazonaws.com/efa": "4",
            },
            "requests": {"cpu": "7900m", "memory": "62976M", "nvidia.com/gpu": "2"},
        },
        "ports": [
            {"name": "tensor-board", "containerPort": 6006},
            {"name": "http", "containerPort": 80},
        ],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "dshm", "mountPath": "/dev/shm"},
            {"name": "mount-0", "mountPath": "/mnt/data", "readOnly": True},
            {"name": "mount-1", "mountPath": "/mnt/claim", "readOnly": False},
            {"name": "mount-2", "mountPath": "/dev/fuse", "readOnly": True},
        ],
    }
    other = main_of(reader)
    assert {"name": "TORCHX_RANK0_HOST", "value": rank0} in other["env"]
    # the request of a small role is half of its limit
    assert other["resources"]["requests"] == {"cpu": "900m", "memory": "50M"}


def test_options_reach_the_pods() -> None:
    found = job(*everything().roles, **OPTIONS)
    pod, main = pod_of(found), main_of(found)
    assert found["spec"]["ttlSecondsAfterFinished"] == 60
    assert found["metadata"]["labels"]["team"] == "vision"
    assert found["metadata"]["annotations"]["note"] == "\u00fc b"
    assert pod["nodeSelector"]["zone"] == "a"
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    assert list(pod["affinity"]) == ["podAntiAffinity"]
    assert pod["serviceAccountName"] == "runner"
    assert pod["priorityClassName"] == "high"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert main["imagePullPolicy"] == "IfNotPresent"
    assert main["envFrom"] == [
        {"secretRef": {"name": "all"}},
        {"configMapRef": {"name": "settings"}},
    ]
    assert {
        "name": "TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "one", "key": "key.txt"}},
    } in main["env"]
    assert pod["volumes"][-1] == {"name": "volume-0", "secret": {"secretName": "ssh"}}
    assert main["volumeMounts"][-1]["mountPath"] == "/etc/ssh-keys"


def test_affinity_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "affinity.yaml"
    file.write_text("nodeAffinity: {}\n")
    assert pod_of(job(role(), affinity=str(file)))["affinity"] == {"nodeAffinity": {}}
    assert pod_of(job(role(), affinity=f"file://{file}"))["affinity"] == {"nodeAffinity": {}}


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        ({"job_api": "jobsets"}, "did you mean 'jobset'"),
        ({"job_api": "volcano"}, "queue"),
        ({"namespace": "No_Name"}, "namespace='No_Name'"),
        ({"tolerations": ["a:NoSchedul"]}, "did you mean 'NoSchedule'"),
        ({"tolerations": ["=b"]}, "key=value:effect"),
        ({"env_from": ["vault/x"]}, "secret/NAME"),
        ({"env_secrets": {"A": "name"}}, "VARIABLE:NAME/KEY"),
        ({"affinity": '{"nodeafinity": {}}'}, "nodeAffinity"),
        ({"affinity": "/no/such/file"}, "no such file"),
        ({"time": "90"}, "option time: '90' is not a time limit; write a time with a unit"),
        ({"ttl_seconds": -1}, "must be 0 or more"),
        ({"labels": {"a b": "c"}}, "is not a valid label"),
        ({"node_selector": {"a": "x" * 64}}, "is not a valid label"),
        ({"image_pull_policy": "always"}, "did you mean 'Always'"),
        ({"retry_policy": "replica"}, "did you mean 'REPLICA'"),
        ({"service_account": "A b"}, "service_account"),
        ({"volumes": ["emptydir:/a"]}, "did you mean 'emptyDir'"),
        ({"volumes": ["emptyDir/name:/a"]}, "must have the form emptyDir:/path or"),
        ({"volumes": ["emptyDir:/a:much"]}, "must have the form emptyDir:/path or"),
        ({"volumes": ["configMap:/a"]}, "must have the form configMap/NAME:/path"),
        ({"volumes": ["secret/a:b"]}, "must have the form secret/NAME:/path"),
        ({"volumes": ["ephemeral/fast:/a"]}, "must have the form ephemeral:/path:SIZE"),
        ({"volumes": ["csi/d:/a:1Gi"]}, "must have the form csi/DRIVER:/path"),
        ({"image_secrets": ["a", "B b"]}, "'B b' is not a valid name"),
        ({"pod_security": "Restricted"}, "did you mean 'restricted'"),
        ({"pod_security": "restricted", "run_as_user": 0}, "forbids root"),
    ],
)
def test_invalid_options_are_refused(cfg: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)) as caught:
        objects(role(), **cfg)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "a b"}, "contains a space"),
        ({"entrypoint": "<MISSING>"}, "no entrypoint"),
        ({"args": ["a\0"]}, "NUL"),
        ({"env": {"A": "\udcff"}}, "not UTF-8"),
        ({"env": {"1A": "x"}}, "not a valid variable name"),
        ({"num_replicas": 0}, "num_replicas is 0; it must be 1 or more"),
        ({"min_replicas": 3}, "min_replicas"),
        ({"port_map": {"a": 70000}}, "a port is 1 to 65535"),
        ({"mounts": [VolumeMount("Bad_Claim", "/a")]}, "persistent volume claim"),
        ({"mounts": [BindMount("/a", "b")]}, "absolute path"),
        ({"mounts": [BindMount("/a", "/b"), BindMount("/c", "/b")]}, "already"),
        ({"mounts": [DeviceMount("/dev/a", "/dev/a", "x")]}, "use r, w and m"),
    ],
)
def test_invalid_roles_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=re.escape(words)):
        objects(role(**fields))


def test_all_problems_are_in_one_error() -> None:
    with pytest.raises(RequestError) as caught:
        objects(role(image="a b"), role(entrypoint=""), namespace="A")
    assert len(caught.value.problems) == 4


def test_an_unknown_type_of_mount_is_refused() -> None:
    with pytest.raises(MountTypeError):
        objects(role(mounts=["x"]))


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidRunConfigException, match="namespace"):
        objects(role(), namespac="x")


# Tests of arguments and variables.

HOSTILE = ["$(PATH)", "$$(PATH)", "$$", "$", "$HOME ${HOME}", "$$$(a)", "a$", "$(", "$$$", "$)"]


def expanded(text: str, env: dict[str, str]) -> str:
    """Expand a text as a node does, by the rules of the API's documentation."""
    out, i = "", 0
    while i < len(text):
        if text[i] != "$" or i + 1 == len(text):
            out, i = out + text[i], i + 1
        elif text[i + 1] == "$":
            out, i = out + "$", i + 2
        elif text[i + 1] == "(" and ")" in text[i + 2 :]:
            end = text.index(")", i)
            name = text[i + 2 : end]
            out, i = out + env.get(name, f"$({name})"), end + 1
        else:
            out, i = out + text[i : i + 2], i + 2
    return out


@pytest.mark.parametrize("text", HOSTILE)
def test_only_the_index_is_expanded(text: str) -> None:
    env = {"PATH": "expanded", "a": "expanded", "TORCHX_REPLICA_ID": "7"}
    assert expanded(escape(text), env) == text
    found = main_of(job(role(args=[f"{text}{macros.replica_id}", text])))["command"]
    values = macros.Values("", "app", "7", "TORCHX_RANK0_HOST")
    assert expanded(found[1], env) == values.substitute(f"{text}{macros.replica_id}")
    assert expanded(found[2], env) == text


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@example("$$$(A)$$(B$)")
def test_escaped_texts_arrive_unchanged(text: str) -> None:
    class Everything(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            return "expanded"

    assert expanded(escape(text), Everything()) == text


def test_the_variable_of_the_index_precedes_its_uses() -> None:
    env = main_of(job(role(env={"A": f"<{macros.replica_id}>"})))["env"]
    names = [one["name"] for one in env]
    assert names.index("TORCHX_REPLICA_ID") < names.index("A")
    assert env[names.index("A")]["value"] == "<$(TORCHX_REPLICA_ID)>"


def test_the_job_id_is_the_handle() -> None:
    service, found = objects(
        role(env={"TORCHX_JOB_ID": f"kubernetes://s/{macros.app_id}"}), namespace="team"
    )
    value = next(e["value"] for e in main_of(found)["env"] if e["name"] == "TORCHX_JOB_ID")
    assert value == f"kubernetes://s/team:{service['metadata']['name']}"


@pytest.mark.parametrize(
    ("roles", "cfg", "pods"),
    [
        ([role(num_replicas=3)], {}, 3),
        ([role(name="a"), role(name="b", num_replicas=2)], {}, 3),
        ([role()], {}, 0),
        ([role(num_replicas=3)], {"job_api": "batch", "queue": "q"}, 0),
        ([role(num_replicas=3)], {"queue": "q"}, 0),
    ],
)
def test_a_dry_run_says_that_nothing_admits_the_pods_together(
    roles: list[Role], cfg: dict[str, Any], pods: int
) -> None:
    text = str(create_scheduler("t").submit_dryrun(AppDef("a", roles), cfg))
    said = f"# Each of the {pods} pods starts when a node has room for it"
    assert (said in text) is (pods > 0)
    assert ("# " in text) is (pods > 0)
    assert [one["kind"] for one in yaml.safe_load_all(text)]


def test_secrets_are_masked_when_shown() -> None:
    info = create_scheduler("t").submit_dryrun(AppDef("a", [role(env={"API_TOKEN": "s3cret"})]), {})
    assert "s3cret" not in str(info)
    assert "s3cret" in json.dumps(info.request.objects)


@pytest.mark.parametrize("api", ["batch", "jobset", "volcano"])
def test_secrets_in_metadata_are_masked_when_shown(api: str) -> None:
    app = AppDef("a", [role()], {"HF_TOKEN": "s3cret", "team": "x", "url": "https://s3cret@h"})
    info = create_scheduler("t").submit_dryrun(app, {"job_api": api, "queue": "q"})
    assert "s3cret" not in str(info)
    assert '"team": "x"' in str(info).replace("\\", "")
    assert "s3cret" in json.dumps(info.request.objects)


# Tests of names.


@pytest.mark.parametrize(
    ("app", "roles"),
    [
        ("x" * 200, ["y" * 200, "y" * 199 + "z"]),
        ("\u00fcml\u00e4ut", ["\u4e2d", "\u6587"]),
        ("1", ["-", "--"]),
        ("../up", ["a b", "a_b", "a.b", "A-B"]),
        ("", ["$(exit 7)"]),
    ],
)
@pytest.mark.parametrize("api", ["batch", "jobset", "volcano"])
def test_names_are_valid_for_any_app_and_role(app: str, roles: list[str], api: str) -> None:
    appdef = AppDef(app, [role(name=name, num_replicas=1000) for name in roles])
    queue = {"queue": "q"} if api == "volcano" else {}
    cfg = {"job_api": api, "fail_together": False, **queue}
    info = create_scheduler("t").submit_dryrun(appdef, cfg)
    if api == "batch":
        jobs = [one["metadata"]["name"] for one in info.request.objects[1:]]
        longest = max(jobs, key=len) + "-999"
        labels = info.request.objects[1]["metadata"]["labels"]
    else:
        spec = info.request.resource["spec"]
        jobs = [one["name"] for one in spec.get("replicatedJobs") or spec["tasks"]]
        tail = "-0-999-abcde" if api == "jobset" else "-999"
        longest = f"{info.request.name}-{max(jobs, key=len)}{tail}"
        labels = info.request.resource["metadata"]["labels"]
    assert len(set(jobs)) == len(roles)
    assert all(LABEL.match(name) for name in jobs)
    assert len(longest) <= 63
    assert re.match(r"[a-z]([a-z0-9-]*[a-z0-9])?\Z", info.request.name)
    for value in labels.values():
        assert len(value) <= 63
        assert LABEL_VALUE.match(value)


@pytest.mark.parametrize("api", ["batch", "jobset", "volcano"])
def test_validate_spec_refuses_names_that_are_too_long(api: str) -> None:
    cfg = {"job_api": api, "validate_spec": True}
    cfg.update({"queue": "q"} if api == "volcano" else {})
    objects(role(), **cfg)
    for name, roles in (("a" * 60, ["r"]), ("a", ["r", "s" * 60])):
        app = AppDef(name, [role(name=one) for one in roles])
        with pytest.raises(RequestError, match="at most 63 characters, and exceeds"):
            create_scheduler("t").submit_dryrun(app, {**cfg, "fail_together": False})


def test_names_are_unique() -> None:
    assert objects(role())[0]["metadata"]["name"] != objects(role())[0]["metadata"]["name"]


def test_port_names_are_valid() -> None:
    ports = {"management_api": 1, "a--b": 2, "8080": 3, "x" * 20: 4, "A_B": 5, "a-b": 6}
    names = [one["name"] for one in main_of(job(role(port_map=ports)))["ports"]]
    assert len(set(names)) == len(names)
    for name in names:
        assert re.match(r"[a-z0-9]+(-[a-z0-9]+)*\Z", name)
        assert len(name) <= 15
        assert re.search("[a-z]", name)


# Tests of retries.


@pytest.mark.parametrize(
    ("api", "fields", "expected"),
    [
        ("batch", {}, {"backoffLimit": 0}),
        ("batch", {"max_retries": 3}, {"backoffLimit": 3}),
        (
            "batch",
            {"max_retries": 3, "num_replicas": 4, "retry_policy": RetryPolicy.REPLICA},
            {"backoffLimitPerIndex": 3, "maxFailedIndexes": 0},
        ),
        ("batch", {"max_retries": 3, "retry_policy": RetryPolicy.ROLE}, {"backoffLimit": 3}),
        ("jobset", {"max_retries": 3, "num_replicas": 4}, {"backoffLimit": 0}),
    ],
)
def test_retries_are_fields_of_each_api(
    api: str, fields: dict[str, Any], expected: dict[str, int]
) -> None:
    found = objects(role(**fields), job_api=api)[-1]["spec"]
    if api == "jobset":
        assert found["failurePolicy"]["maxRestarts"] == 3
        found = found["replicatedJobs"][0]["template"]["spec"]
    assert {key: found[key] for key in found if key.startswith(("backoff", "maxF"))} == expected
    action = "FailJob" if api == "jobset" else "Ignore"
    assert found["podFailurePolicy"]["rules"][0]["action"] == action


def test_plain_jobs_warn_that_one_replica_restarts(caplog: pytest.LogCaptureFixture) -> None:
    found = job(role(num_replicas=2, max_retries=3))
    assert found["spec"]["backoffLimit"] == 3
    assert "-cfg retry_policy=APPLICATION" in caplog.text


def test_plain_jobs_refuse_restarts_of_a_role() -> None:
    one_role = role(max_retries=1, num_replicas=2, retry_policy=RetryPolicy.ROLE)
    with pytest.raises(RequestError, match=r"job_api=.*retry_policy=APPLICATION.*=REPLICA"):
        objects(one_role)


def test_a_role_without_retries_fails_a_jobset() -> None:
    (found,) = objects(role(name="a", max_retries=2), role(name="b"), job_api="jobset")
    assert found["spec"]["failurePolicy"] == {
        "maxRestarts": 2,
        "rules": [
            {
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "targetReplicatedJobs": ["a", "b"],
            },
            {"action": "FailJobSet", "targetReplicatedJobs": ["b"]},
        ],
    }


def test_an_own_pod_failure_policy_gets_no_unlimited_restarts() -> None:
    """After a user's rule has failed a Job, the JobSet must not restart without limit."""
    own = role(name="own", max_retries=1)
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    set_overlay(own, "kubernetes", "V1Job", {"spec": {"podFailurePolicy": {"rules": [rule]}}})
    (found,) = objects(own, role(name="other", max_retries=1), job_api="jobset")
    assert [one["targetReplicatedJobs"] for one in found["spec"]["failurePolicy"]["rules"]] == [
        ["other"]
    ]


@pytest.mark.parametrize(
    "fields", [{"num_replicas": 1}, {"num_replicas": 2, "retry_policy": RetryPolicy.REPLICA}]
)
def test_a_pod_that_restarts_alone_is_replaced_after_a_disruption(fields: dict[str, Any]) -> None:
    (found,) = objects(role(**fields), job_api="jobset")
    assert "failurePolicy" not in found["spec"]
    job = found["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["podFailurePolicy"]["rules"][0]["action"] == "Ignore"


@pytest.mark.parametrize(
    ("roles", "actions", "most", "warned"),
    [
        ([{"num_replicas": 2}], ["RestartJob"], 3, ""),
        ([{"num_replicas": 2, "retry_policy": RetryPolicy.ROLE}], ["RestartJob"], 3, ""),
        ([{"retry_policy": RetryPolicy.REPLICA}], ["RestartJob"], 3, ""),
        (
            [{"num_replicas": 2, "retry_policy": RetryPolicy.REPLICA}],
            ["RestartPod"],
            3,
            "REPLICA is Volcano's RestartPod",
        ),
        (
            [{"name": "a", "retry_policy": RetryPolicy.ROLE}, {"name": "b", "max_retries": 0}],
            ["RestartTask"],
            3,
            "ROLE is Volcano's RestartTask",
        ),
        ([{"name": "a"}, {"name": "b", "max_retries": 1}], ["RestartJob", "RestartJob"], 2, ""),
        ([{"max_retries": 0}], [], 0, ""),
    ],
)
def test_retries_of_volcano(
    roles: list[dict[str, Any]],
    actions: list[str],
    most: int,
    warned: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (found,) = objects(*(role(**{"max_retries": 2, **fields}) for fields in roles), queue="q")
    policies = [task["policies"] for task in found["spec"]["tasks"] if "policies" in task]
    assert [one[1] for one in policies] == [
        {"event": "PodFailed", "action": action} for action in actions
    ]
    assert found["spec"]["maxRetry"] == most
    assert (warned in caplog.text) if warned else not caplog.text


def test_a_queue_suspends_the_job_for_kueue() -> None:
    found = job(role(num_replicas=4, min_replicas=2), queue="gpus", job_api="batch")
    assert found["spec"]["suspend"] is True
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert found["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] == "2"
    (jobset,) = objects(role(), queue="gpus", job_api="jobset")
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert jobset["spec"]["suspend"] is True


# Tests of JobSet, Volcano and MCAD.


def test_a_jobset_has_a_job_for_each_role() -> None:
    (found,) = objects(role(name="a", num_replicas=2), role(name="b"), job_api="jobset")
    name = found["metadata"]["name"]
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert [one["name"] for one in found["spec"]["replicatedJobs"]] == ["a", "b"]
    assert found["spec"]["network"]["publishNotReadyAddresses"] is True
    for one in found["spec"]["replicatedJobs"]:
        spec = one["template"]["spec"]
        rank0 = {"name": "TORCHX_RANK0_HOST", "value": f"{name}-a-0-0.{name}"}
        assert rank0 in spec["template"]["spec"]["containers"][0]["env"]
        assert "subdomain" not in spec["template"]["spec"]


def test_a_queue_selects_volcano() -> None:
    equal = role(name="trainer", num_replicas=5, min_replicas=3, max_retries=2)
    each = role(name="ps", args=[macros.replica_id], num_replicas=2, min_replicas=1)
    (found,) = objects(equal, each, queue="default", priority_class="high")
    name = found["metadata"]["name"]
    assert (found["apiVersion"], found["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
    spec = dict(found["spec"])
    tasks = spec.pop("tasks")
    assert spec == {
        "schedulerName": "volcano",
        "queue": "default",
        "maxRetry": 3,
        "plugins": {"svc": ["--publish-not-ready-addresses"], "env": []},
        "priorityClassName": "high",
    }
    assert [(t["name"], t["replicas"], t.get("minAvailable")) for t in tasks] == [
        ("trainer", 5, 3),
        ("ps", 2, 1),
    ]
    assert tasks[0]["maxRetry"] == 2
    assert tasks[0]["policies"] == [
        {"event": "PodEvicted", "action": "RestartJob"},
        {"event": "PodFailed", "action": "RestartJob"},
    ]
    assert "policies" not in tasks[1]
    rank0 = {"name": "TORCHX_RANK0_HOST", "value": f"{name}-trainer-0.{name}"}
    for task in tasks:
        main = task["template"]["spec"]["containers"][0]
        assert main["name"] == task["name"]
        assert rank0 in main["env"]
        index = {"fieldRef": {"fieldPath": "metadata.labels['volcano.sh/task-index']"}}
        assert main["env"][0] == {"name": "TORCHX_REPLICA_ID", "valueFrom": index}
    main = tasks[1]["template"]["spec"]["containers"][0]
    assert main["command"][1:] == ["$(TORCHX_REPLICA_ID)"]


# Tests of overlays.


def test_an_overlay_changes_pods() -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {"nodeSelector": {"accelerator": "a100"}}})
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {"tolerations": [{"key": "gpu"}]}})
    set_overlay(
        one,
        "kubernetes",
        "V1Pod",
        {
            "metadata": {"labels": {"a": "b", labels_module.LABEL_UNIQUE_NAME: "other"}},
            "spec": {
                JOIN("containers", on="name"): [
                    {"name": "main", "tty": True},
                    {"name": "beside", "image": "x", "args": [macros.app_id]},
                ]
            },
        },
    )
    service, found = objects(one, tolerations=["spot"])
    pod = pod_of(found)
    assert pod["nodeSelector"] == {"accelerator": "a100"}
    assert [t["key"] for t in pod["tolerations"]] == ["spot", "gpu"]
    assert pod["containers"][0]["tty"] is True
    assert pod["containers"][0]["image"] == "busybox:1"
    assert pod["containers"][1]["args"] == [service["metadata"]["name"]]
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert labels["a"] == "b"
    assert labels[labels_module.LABEL_UNIQUE_NAME] == service["metadata"]["name"]


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
def test_overlays_work_with_every_api(cfg: dict[str, Any]) -> None:
    one = role(num_replicas=2)
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {PUT("volumes"): [], "hostNetwork": True}})
    text = json.dumps(objects(one, **cfg))
    assert '"hostNetwork": true' in text
    assert "dshm" in text  # the mount of the removed volume stays
    assert '"emptyDir"' not in text


def test_the_option_image_is_for_roles_without_an_image() -> None:
    for image in ("", "<NONE>"):
        main = main_of(job(role(image=image), image="busybox:3"))
        assert main["image"] == "busybox:3"
        assert {"name": "TORCHX_IMAGE", "value": "busybox:3"} in main["env"]
    assert main_of(job(role(), image="busybox:3"))["image"] == "busybox:1"
    with pytest.raises(RequestError, match="option image"):
        objects(role(image="<NONE>"))


def test_an_overlay_may_set_the_image() -> None:
    one = role(image="")
    images = {JOIN("containers", on="name"): [{"name": "main", "image": "busybox:2"}]}
    set_overlay(one, "kubernetes", "V1Pod", {"spec": images})
    assert main_of(job(one))["image"] == "busybox:2"


def test_an_overlay_may_be_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("spec:\n  runtimeClassName: gvisor\nmetadata:\n  labels: {a: b}\n")
    found = job(role(metadata={"kubernetes": str(file)}))
    assert "no overlay of kind 'V1Pod'" in caplog.text
    assert pod_of(found)["runtimeClassName"] == "gvisor"
    assert found["spec"]["template"]["metadata"]["labels"]["a"] == "b"
    file.write_text("V1Pod: {spec: {runtimeClassName: kata}}\n")
    found = job(role(metadata={"kubernetes": f"file://{file}"}))
    assert pod_of(found)["runtimeClassName"] == "kata"


def test_an_overlay_changes_jobs() -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Job", {"spec": {"activeDeadlineSeconds": 7}})
    app = AppDef("app", [one])
    set_overlay(app, "kubernetes", "V1Job", {"metadata": {"annotations": {"a": "b"}}})
    set_overlay(app, "kubernetes", "V1Job", {"spec": {DEL("podFailurePolicy"): None}})
    _, found = create_scheduler("t").submit_dryrun(app, {}).request.objects
    assert found["spec"]["activeDeadlineSeconds"] == 7
    assert found["metadata"]["annotations"]["a"] == "b"
    assert "podFailurePolicy" not in found["spec"]
    assert "activeDeadlineSeconds" not in pod_of(found)


@pytest.mark.parametrize(
    ("kind", "overlay", "words"),
    [
        ("V1Pod", {"spec": {"nodeSelectr": {}}}, "did you mean 'nodeSelector'"),
        ("V1Pod", {"nodeSelector": {}}, "did you mean 'spec.nodeSelector'"),
        ("V1Pod", {"metadata": {"label": {}}}, "did you mean 'labels'"),
        ("V1Pod", {"spec": {"hostname": "x"}}, "`spec.hostname` cannot be changed"),
        ("V1Pod", {"spec": {"restartPolicy": "Always"}}, "`spec.restartPolicy`"),
        ("V1Pod", {"spec": {"containers": {}}}, "type mismatch"),
        ("V1Job", {"spec": {"template": {"spec": {"hostPID": True}}}}, "in the overlay V1Pod"),
        ("V1Job", {"spec": {"completions": 7}}, "`spec.completions`"),
        ("V1Job", {"spec": {"backofLimit": 7}}, "did you mean 'backoffLimit'"),
    ],
)
def test_invalid_overlays_are_refused(kind: str, overlay: dict[str, Any], words: str) -> None:
    one = role()
    set_overlay(one, "kubernetes", kind, overlay)
    with pytest.raises(RequestError, match=re.escape(words)) as caught:
        objects(one)
    assert "\n" not in str(caught.value)


def test_unknown_fields_are_allowed_without_validation() -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {"inventedLater": 1}})
    assert pod_of(job(one, validate_spec=False))["inventedLater"] == 1


def test_an_object_that_is_too_large_is_refused() -> None:
    with pytest.raises(RequestError, match=r"1\.9 MB.*1\.5 MB"):
        objects(role(args=["x" * 100_000] * 20))


# Tests of options, and of dry runs.


def test_every_option_has_a_help_text() -> None:
    opts = dict(create_scheduler("t").run_opts())
    known = {"queue", "namespace", "service_account", "priority_class", "validate_spec"}
    assert known | {"reserved_millicpu", "reserved_memmb", "efa_device_count"} <= opts.keys()
    assert not any(opt.is_required for opt in opts.values())
    assert all(opt.help and opt.help != name for name, opt in opts.items())


def test_a_dry_run_imports_no_client_library() -> None:
    code = (
        "import sys; from torchx_specs import AppDef, Role\n"
        "from torchx_sched_k8s.scheduler import create_scheduler as k\n"
        "app = AppDef('a', [Role('r', 'i', entrypoint='e')])\n"
        "for cfg in {}, {'job_api': 'jobset'}, {'queue': 'q'}:\n"
        "    str(k('t').submit_dryrun(app, cfg))\n"
        "print(sorted({'kubernetes', 'urllib3', 'docker', 'requests'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_volumes_of_the_option() -> None:
    texts = [
        "emptyDir:/scratch:10Gi",
        "emptyDir:/small",
        "configMap/settings:/etc/app",
        "secret/keys:/keys",
        "ephemeral:/data:1Ti",
        "ephemeral/fast:/fast:5.5G",
        "csi/secrets.example.com:/vault",
    ]
    found = job(role(), volumes=texts)
    volumes = {one["name"]: one for one in pod_of(found)["volumes"]}
    sources = [volumes[f"volume-{i}"] for i in range(len(texts))]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}}
    fast = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "5.5G"}},
        "storageClassName": "fast",
    }
    assert sources == [
        {"name": "volume-0", "emptyDir": {"sizeLimit": "10Gi"}},
        {"name": "volume-1", "emptyDir": {}},
        {"name": "volume-2", "configMap": {"name": "settings"}},
        {"name": "volume-3", "secret": {"secretName": "keys"}},
        {"name": "volume-4", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}},
        {"name": "volume-5", "ephemeral": {"volumeClaimTemplate": {"spec": fast}}},
        {"name": "volume-6", "csi": {"driver": "secrets.example.com"}},
    ]
    paths = [m["mountPath"] for m in main_of(found)["volumeMounts"] if m["name"] in volumes]
    assert paths[-7:] == ["/scratch", "/small", "/etc/app", "/keys", "/data", "/fast", "/vault"]


def test_several_pull_secrets() -> None:
    found = pod_of(job(role(), image_secret="a", image_secrets=["b", "a", "c"]))
    assert found["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]


def test_restricted_pods_mount_no_files_of_the_node() -> None:
    mounts = [BindMount("/data", "/data"), VolumeMount("claim", "/claim")]
    with pytest.raises(RequestError, match=re.escape("mounts[0] mounts '/data' of the node")):
        objects(role(mounts=mounts), pod_security="restricted")


def test_roles_that_kueue_would_admit_apart_are_refused() -> None:
    roles = [role(name="a"), role(name="b")]
    with pytest.raises(RequestError, match="use job_api=jobset, which Kueue admits as a whole"):
        objects(*roles, job_api="batch", queue="q")
    (jobset,) = objects(*roles, job_api="jobset", queue="q")
    assert jobset["spec"]["suspend"] is True


def test_plain_jobs_warn_that_other_roles_run_on(caplog: pytest.LogCaptureFixture) -> None:
    roles = [role(name="a"), role(name="b")]
    objects(*roles, job_api="jobset")
    with pytest.raises(RequestError, match="pip install torchx-k8s-supervisor; or use job_api"):
        objects(*roles, retry_policy="APPLICATION")
    assert not caplog.text
    objects(*roles)
    assert "is not installed; run: pip install torchx-k8s-supervisor; or use" in caplog.text
    objects(*roles, fail_together=False)
    assert "when one of its 2 roles fails for good, plain Jobs do not end the others" in caplog.text
