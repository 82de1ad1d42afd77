"""Tests of the supervisor: its objects, its program, and the status of an app that has one."""

from __future__ import annotations

import ast
import copy
import http.client
import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from torchx_k8s_supervisor import program as supervisor
from torchx_k8s_supervisor.program import (
    ENDED,
    MAX_RESTARTS,
    REASON,
    RESTARTS,
    TERMINATED,
    TROUBLE,
    ChangedError,
    RefusedError,
    Supervisor,
    UnreachableError,
)
from torchx_k8s_supervisor.supervisor import ANNOTATION_ROLES
from torchx_kit.jobs.attempts import NODE_FAILURES
from torchx_sched_k8s.backends.batch import BATCH
from torchx_sched_k8s.backends.supervision import LABEL_PART
from torchx_sched_k8s.cluster import labels
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.request.kubernetes_job import MANIFESTS
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_sched_k8s.status.views import AppView
from torchx_specs import AppDef, AppState, Resource, RetryPolicy, Role
from torchx_specs.errors import RequestError
from torchx_specs.overlays import set_overlay

# This name stands for a class of conftest.py, which tests cannot import.
ApiDouble = Any

P, R, S, F, C = (
    AppState.PENDING,
    AppState.RUNNING,
    AppState.SUCCEEDED,
    AppState.FAILED,
    AppState.CANCELLED,
)

# Tests of the request.


def role(name: str = "trainer", **words: Any) -> Role:
    return Role(**{"name": name, "image": "ml:1", "entrypoint": "sh", **words})


def objects(*roles: Role, **cfg: Any) -> list[dict[str, Any]]:
    cfg = {"retry_policy": "APPLICATION", **cfg}
    info = create_scheduler("t").submit_dryrun(AppDef("app", list(roles)), cfg)
    found: list[dict[str, Any]] = info.request.objects
    return found


def kinds(found: list[dict[str, Any]]) -> list[str]:
    return [one["kind"] for one in found]


PLAIN = ["Service", "Job"]
ACCOUNT = ["ServiceAccount", "Role", "RoleBinding"]


@pytest.mark.parametrize(
    ("roles", "cfg", "supervised"),
    [
        ([role(num_replicas=2, max_retries=1)], {}, True),
        # a disruption of one replica restarts all replicas
        ([role(num_replicas=2)], {}, True),
        # a Job restarts a single replica without a supervisor
        ([role(max_retries=3)], {}, False),
        ([role(), role("reader")], {}, True),
        ([role(), role("reader")], {"retry_policy": "REPLICA", "fail_together": False}, False),
        # without the option retry_policy, a role's default policy adds no supervisor
        ([role(max_retries=3, num_replicas=2)], {"retry_policy": None}, False),
        ([role(), role("reader")], {"job_api": "jobset"}, False),
    ],
)
def test_which_apps_get_a_supervisor(
    roles: list[Role], cfg: dict[str, Any], supervised: bool
) -> None:
    found = kinds(objects(*roles, **cfg))
    if supervised:
        assert found == ["Service", "ConfigMap", *ACCOUNT, *["Job"] * len(roles), "Job"]
    else:
        assert not {"ConfigMap", *ACCOUNT} & set(found)


@pytest.mark.parametrize("policy", [None, "REPLICA"])
def test_several_roles_get_a_supervisor_that_only_ends_them(policy: str | None) -> None:
    roles = [role(max_retries=2, num_replicas=2), role("reader")]
    found = objects(*roles, retry_policy=policy)
    assert kinds(found) == ["Service", *ACCOUNT, "Job", "Job", "Job"]
    trainer, reader, own = found[-3:]
    # a supervisor that only ends roles does not change the retries of replicas
    plain = objects(*roles, retry_policy=policy, fail_together=False)
    assert trainer["spec"]["podFailurePolicy"] == plain[1]["spec"]["podFailurePolicy"]
    assert trainer["spec"].get("backoffLimit") == plain[1]["spec"].get("backoffLimit")
    names = [one["metadata"]["name"] for one in (trainer, reader)]
    command = own["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[3:] == [own["metadata"]["name"], "default", *names]
    (rule,) = found[2]["rules"]
    assert rule["verbs"] == ["get", "patch"]
    assert rule["resourceNames"] == [own["metadata"]["name"], *names]


@pytest.mark.parametrize("version", ["1.32", "1.37"])
def test_the_supervisor_matches_the_published_schemas(version: str) -> None:
    info = create_scheduler("t").submit_dryrun(
        AppDef("app", [role(max_retries=2, num_replicas=2, env={"A_TOKEN": "s3cret"}), role("b")]),
        {
            "retry_policy": "APPLICATION",
            "image_secret": "pull",
            "image_pull_policy": "IfNotPresent",
            "tolerations": ["spot"],
            "node_selector": {"zone": "a"},
            "priority_class": "high",
            "labels": {"team": "a"},
            "annotations": {"note": "b"},
            "ttl_seconds": 60,
        },
    )
    documents = list(yaml.safe_load_all(str(info)))
    assert kinds(documents) == ["Service", "ConfigMap", *ACCOUNT, "Job", "Job", "Job"]
    for one in documents:
        kubernetes_validate.validate(one, version, strict=True)
        assert one["metadata"]["labels"]["team"] == "a"
        assert one["metadata"]["annotations"]["note"] == "b"
    # the config map contains the unmasked Jobs, because the supervisor creates them again
    config_map = info.request.objects[1]
    assert json.loads(config_map["data"]["jobs.json"]) == info.request.objects[5:7]
    assert "s3cret" in config_map["data"]["jobs.json"]
    assert "s3cret" not in str(info)
    assert json.loads(documents[1]["data"]["jobs.json"]) == documents[5:7]
    # the program is printed as a YAML block of several lines
    assert "\n              sys.exit(" in str(info) or "\n            sys.exit(" in str(info)


def test_the_supervisor_is_not_a_replica() -> None:
    service, config_map, account, rights, binding, trainer, reader, own = objects(
        role(num_replicas=3, max_retries=2), role("reader", resource=Resource(1, 8, 100))
    )
    name = service["metadata"]["name"]
    assert {one["metadata"]["name"] for one in (config_map, account, rights, binding, own)} == {
        name
    }
    part = LABEL_PART
    pods = [job["spec"]["template"] for job in (trainer, reader, own)]
    assert [pod["metadata"]["labels"][part] for pod in pods] == [
        "replica",
        "replica",
        "supervisor",
    ]
    assert service["spec"]["selector"].items() <= pods[0]["metadata"]["labels"].items()
    assert not service["spec"]["selector"].items() <= pods[2]["metadata"]["labels"].items()
    assert labels.LABEL_ROLE_INDEX not in pods[2]["metadata"]["labels"]
    assert [job["spec"]["backoffLimit"] for job in (trainer, reader)] == [0, 0]
    assert [job["metadata"]["annotations"][MAX_RESTARTS] for job in (trainer, reader)] == [
        "2",
        "0",
    ]
    assert own["metadata"]["annotations"][ANNOTATION_ROLES] == "2"
    spec = pods[2]["spec"]
    (main,) = spec["containers"]
    assert (main["image"], spec["serviceAccountName"]) == ("ml:1", name)
    assert main["resources"]["requests"] == {"cpu": "10m", "memory": "64Mi"}
    assert "nvidia.com/gpu" not in json.dumps(spec)
    assert main["command"][:2] == ["python3", "-c"]
    assert main["command"][3:] == [name, "default"]


def test_rights_are_limited_to_the_app_by_name() -> None:
    found = objects(role(), role("reader"))
    name = found[-1]["metadata"]["name"]
    rules = [
        (tuple(rule["resources"]), rule.get("resourceNames"), rule["verbs"])
        for rule in found[3]["rules"]
    ]
    assert rules == [
        (("jobs",), [name], ["get", "patch"]),
        (("jobs",), [f"{name}-trainer", f"{name}-reader"], ["get", "patch", "delete"]),
        (("jobs",), None, ["create"]),
        (("configmaps",), [name], ["get"]),
    ]
    assert found[4]["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    ]
    assert found[4]["roleRef"]["name"] == name


def test_options_reach_the_supervisor() -> None:
    found = objects(
        role(),
        role("reader"),
        restarts_image="python:3",
        restarts_service_account="robot",
        service_account="trainer",
        node_selector={"zone": "a"},
        tolerations=["spot"],
        image_pull_policy="Never",
        image_secret="pull",
        ttl_seconds=60,
    )
    assert kinds(found) == ["Service", "ConfigMap", "Job", "Job", "Job"]
    own = found[-1]["spec"]
    pod = own["template"]["spec"]
    assert pod["containers"][0]["image"] == "python:3"
    assert pod["containers"][0]["imagePullPolicy"] == "Never"
    assert pod["serviceAccountName"] == "robot"
    assert pod["nodeSelector"] == {"zone": "a"}
    assert pod["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    # all objects are deleted with the supervisor, and not before
    assert own["ttlSecondsAfterFinished"] == 60
    assert "ttlSecondsAfterFinished" not in json.dumps(found[:-1])
    with pytest.raises(RequestError, match="option restarts_service_account='A b'"):
        objects(role(), role("b"), restarts_service_account="A b")
    with pytest.raises(RequestError, match="option restarts_image='a b'"):
        objects(role(), role("b"), restarts_image="a b")


def test_the_supervisor_runs_as_the_first_role_does() -> None:
    first = role()
    overlay = {"spec": {"securityContext": {"runAsUser": 1000, "runAsNonRoot": True}}}
    set_overlay(first, "kubernetes", "V1Pod", overlay)
    found = objects(first, role("b"))
    for one in found:
        kubernetes_validate.validate(one, "1.32", strict=True)
    pod = found[-1]["spec"]["template"]["spec"]
    assert pod["securityContext"] == {"runAsUser": 1000, "runAsNonRoot": True}
    context = pod["containers"][0]["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]


def test_the_supervisor_uses_the_option_image() -> None:
    found = objects(role(image=""), role("reader"), image="default:1")
    assert found[-1]["spec"]["template"]["spec"]["containers"][0]["image"] == "default:1"


def test_apps_that_cannot_be_restarted_are_refused() -> None:
    one = role(num_replicas=2, max_retries=1)
    set_overlay(one, "kubernetes", "V1Job", {"spec": {"ttlSecondsAfterFinished": 5}})
    with pytest.raises(RequestError, match="set the option ttl_seconds"):
        objects(one)
    with pytest.raises(RequestError, match="stores them in a config map"):
        objects(*[role(f"r{i}", args=["x" * 100_000] * 4) for i in range(3)])


def test_jobs_that_are_not_restarted_may_have_a_time_to_live() -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Job", {"spec": {"ttlSecondsAfterFinished": 5}})
    found = objects(one, role("reader"), retry_policy="REPLICA")
    seconds = {x["spec"].get("ttlSecondsAfterFinished") for x in found if x["kind"] == "Job"}
    assert 5 in seconds


def test_the_default_policy_warns_and_names_the_option(caplog: pytest.LogCaptureFixture) -> None:
    objects(role(num_replicas=2, max_retries=1), retry_policy=None)
    assert "-cfg retry_policy=APPLICATION restarts the whole app" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        objects(role(num_replicas=2, max_retries=1))
        objects(role(num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA))
    assert caplog.text == ""


# Tests of the program.


def test_the_program_runs_on_python_3_7() -> None:
    text = files("torchx_k8s_supervisor").joinpath("program.py").read_text("utf-8")
    assert text.isascii()
    assert len(text) < 100_000  # Linux allows 128 KiB for one argument
    tree = ast.parse(text, feature_version=(3, 7))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {
        "__future__",
        "calendar",
        "collections",
        "copy",
        "glob",
        "http",
        "json",
        "os",
        "signal",
        "ssl",
        "sys",
        "time",
        "typing",
    }
    # functions and parameters that Python 3.7 does not have
    assert not re.search(r"\.remove(pre|suf)fix\(|functools\.cache\b|zip\(.*strict=", text)
    (command,) = (
        one["spec"]["template"]["spec"]["containers"][0]["command"]
        for one in objects(role(), role("b"))[-1:]
    )
    # a node replaces $(NAME) by a variable, and $$ by $
    assert re.sub(r"\$\$", "$", command[2]) == text
    assert not re.search(r"(?<!\$)\$\(", command[2])


def test_back_end_and_program_use_the_same_annotations() -> None:
    pairs = {
        "ROLE_NAME": labels.ANNOTATION_ROLE_NAME,
        "CANCELLED": labels.ANNOTATION_CANCELLED,
        "ENDED": labels.ANNOTATION_ENDED,
        "ATTEMPT": labels.ANNOTATION_ATTEMPT,
        "MANIFESTS": MANIFESTS,
    }
    assert {name: getattr(supervisor, name) for name in pairs} == pairs


class ClusterDouble:
    """The Jobs of one app, as an API server stores them."""

    def __init__(self, *roles: Role, **cfg: Any) -> None:
        found = objects(*roles, **cfg)
        command = found[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
        self.arguments: list[str] = command[3:]
        self.app = found[-1]["metadata"]["name"]
        self.config_map = found[1]
        self.jobs: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str]] = []
        #: Called with the method and the object's name before each request.
        self.before: Callable[[str, str], None] = lambda method, name: None
        self._versions = itertools.count(1)
        for job in found:
            if job["kind"] == "Job":
                self._store(job)

    def _store(self, job: dict[str, Any]) -> dict[str, Any]:
        job = copy.deepcopy(job)
        version = str(next(self._versions))
        job["metadata"].setdefault("uid", f"uid-{version}")
        job["metadata"]["resourceVersion"] = version
        job.setdefault("status", {})
        self.jobs[job["metadata"]["name"]] = job
        return job

    def job(self, part: str) -> dict[str, Any]:
        return self.jobs[f"{self.app}-{part}" if part else self.app]

    def annotations_of(self, part: str = "") -> dict[str, str]:
        found: dict[str, str] = self.job(part)["metadata"].get("annotations") or {}
        return found

    def end(
        self,
        part: str,
        how: str = "Failed",
        when: str = "2026-01-01T00:00:00Z",
        reason: str = "R",
        message: str = "m",
    ) -> None:
        condition = {"type": how, "status": "True", "reason": reason, "message": message}
        self.job(part)["status"] = {"conditions": [{**condition, "lastTransitionTime": when}]}

    def finish_deletions(self) -> None:
        """Remove the Jobs that are being deleted, as if all their pods had ended."""
        for name, job in list(self.jobs.items()):
            if "deletionTimestamp" in job["metadata"]:
                del self.jobs[name]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        _, _, rest = path.partition("/namespaces/default/")
        plural, _, name = rest.partition("/")
        self.before(method, name)
        self.requests.append((method, name or body["metadata"]["name"]))
        if plural == "configmaps":
            return self.config_map
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.jobs:
                raise ChangedError("409 exists")
            return self._store(body)
        job = self.jobs.get(name)
        if job is None or method == "GET":
            return copy.deepcopy(job)
        if method == "DELETE":
            assert body["propagationPolicy"] == "Foreground"
            if body["preconditions"]["uid"] != job["metadata"]["uid"]:
                raise ChangedError("409 uid")
            job["metadata"]["deletionTimestamp"] = "now"
            return job
        given = dict(body["metadata"])
        for key in ("uid", "resourceVersion"):
            if given.pop(key, job["metadata"][key]) != job["metadata"][key]:
                raise ChangedError(f"409 {key}")
        notes = {**(job["metadata"].get("annotations") or {}), **given.pop("annotations", {})}
        job["metadata"]["annotations"] = {k: v for k, v in notes.items() if v is not None}
        job["spec"].update(body.get("spec", {}))
        return self._store(job)

    def supervisor(self) -> Supervisor:
        app, namespace, *jobs = self.arguments
        return Supervisor(self, app, namespace, jobs)  # type: ignore[arg-type]

    def step(self, times: int = 1) -> int | None:
        """Run steps, each in a new supervisor without earlier state; return the last result."""
        code = None
        for _ in range(times):
            try:
                code = self.supervisor().step()
            except ChangedError:  # the program takes the next step
                code = None
        return code


def two_roles() -> ClusterDouble:
    return ClusterDouble(role(max_retries=2), role("reader", max_retries=1))


def test_the_program_only_reads_while_nothing_fails() -> None:
    cluster = two_roles()
    assert cluster.step(3) is None
    cluster.end("reader", "Complete")
    assert cluster.step(2) is None
    assert {method for method, _ in cluster.requests} == {"GET"}
    cluster.end("trainer", "Complete")
    assert cluster.step() == 0


def test_a_failure_deletes_and_creates_all_jobs() -> None:
    cluster = two_roles()
    first = {name: job["metadata"]["uid"] for name, job in cluster.jobs.items()}
    cluster.end("reader", "Complete")
    cluster.end("trainer")
    assert cluster.step() is None
    assert cluster.annotations_of()[RESTARTS] == "1"
    assert cluster.annotations_of()[REASON] == "restart 1 of 2: role 'trainer' failed: R: m"
    assert cluster.step() is None
    assert all(
        "deletionTimestamp" in cluster.job(part)["metadata"] for part in ("trainer", "reader")
    )
    # no Job is created while pods of the previous attempt may exist
    del cluster.jobs[f"{cluster.app}-reader"]
    assert cluster.step(3) is None
    assert f"{cluster.app}-reader" not in cluster.jobs
    cluster.finish_deletions()
    assert cluster.step(2) is None
    for part in ("trainer", "reader"):
        job = cluster.job(part)
        assert job["metadata"]["uid"] != first[job["metadata"]["name"]]
        assert job["metadata"]["annotations"][RESTARTS] == "1"
        assert job["spec"]["template"]["metadata"]["annotations"][RESTARTS] == "1"
        (owner,) = job["metadata"]["ownerReferences"]
        assert (owner["name"], owner["uid"]) == (cluster.app, first[cluster.app])
    assert "DELETE" in {method for method, _ in cluster.requests}
    assert ("DELETE", cluster.app) not in cluster.requests
    # the restart after the other role's failure also counts towards this role's max_retries
    cluster.end("reader")
    cluster.step()
    assert cluster.annotations_of()[ENDED] == ("role 'reader' failed after 1 restart: R: m")


def test_a_failure_counts_once() -> None:
    cluster = two_roles()
    cluster.end("trainer")
    raced = []

    def other(method: str, name: str) -> None:
        # another supervisor, whose node was wrongly considered lost, sees the same failure
        if method == "PATCH" and not raced:
            raced.append(name)
            cluster.step()

    cluster.before = other
    assert cluster.step() is None
    assert raced == [cluster.app]
    assert cluster.annotations_of()[RESTARTS] == "1"


def test_a_supervisor_that_is_behind_creates_no_job() -> None:
    cluster = two_roles()
    del cluster.jobs[f"{cluster.app}-reader"]
    seen = itertools.count()

    def other(method: str, name: str) -> None:
        if (method, name) == ("GET", cluster.app) and next(seen) == 1:
            cluster.annotations_of()[RESTARTS] = "1"

    cluster.before = other
    assert cluster.step() is None
    assert "POST" not in {method for method, _ in cluster.requests}


@pytest.mark.parametrize("step", range(5))
def test_another_supervisor_continues_after_any_request(step: int) -> None:
    cluster = two_roles()
    cluster.end("trainer")
    left = itertools.count()

    class KilledError(Exception):
        pass

    def die(method: str, name: str) -> None:
        if method != "GET" and next(left) == step:
            raise KilledError

    cluster.before = die
    for _ in range(30):
        try:
            cluster.step()
        except KilledError:
            pass
        cluster.finish_deletions()
    assert cluster.annotations_of()[RESTARTS] == "1"
    assert {cluster.annotations_of(part)[RESTARTS] for part in ("trainer", "reader")} == {"1"}
    assert ENDED not in cluster.annotations_of()


def test_the_first_failure_counts() -> None:
    cluster = two_roles()
    cluster.end("trainer", when="2026-01-01T00:00:05Z")
    cluster.end("reader", when="2026-01-01T00:00:04Z")
    cluster.step()
    assert cluster.annotations_of()[REASON].startswith("restart 1 of 1: role 'reader' failed")


def test_other_roles_end_after_the_last_failure() -> None:
    cluster = ClusterDouble(role(), role("reader"), role("writer"))
    cluster.end("trainer")
    cluster.end("writer", "Complete")
    assert cluster.step(2) is None
    assert cluster.annotations_of()[ENDED] == "role 'trainer' failed: R: m"
    assert cluster.job("reader")["spec"]["activeDeadlineSeconds"] == 1
    assert cluster.annotations_of("reader")[ENDED] == cluster.annotations_of()[ENDED]
    for part in ("trainer", "writer"):
        assert ENDED not in cluster.annotations_of(part)
    assert cluster.step() is None
    cluster.end("reader")
    assert cluster.step() == 0


def test_without_restarts_the_program_only_ends_roles() -> None:
    roles = [role(max_retries=2), role("reader"), role("writer")]
    cluster = ClusterDouble(*roles, retry_policy=None)
    # somebody deleted a Job: the program does not create it again
    del cluster.jobs[f"{cluster.app}-writer"]
    assert cluster.step(2) is None
    cluster.end("trainer")
    assert cluster.step(2) is None
    assert cluster.annotations_of()[ENDED] == "role 'trainer' failed: R: m"
    assert cluster.job("reader")["spec"]["activeDeadlineSeconds"] == 1
    cluster.end("reader")
    assert cluster.step() == 0
    assert {method for method, _ in cluster.requests} == {"GET", "PATCH"}
    assert {name for _, name in cluster.requests} <= {cluster.app, *cluster.arguments[2:]}


def disrupt(cluster: ClusterDouble, part: str) -> None:
    """Fail a Job as its failure policy does after a disruption of a pod."""
    what = f"Pod default/{part}-0 has condition DisruptionTarget"
    message = f"{what} matching FailJob rule at index 0"
    cluster.end(part, reason="PodFailurePolicy", message=message)


def test_a_disruption_restarts_the_app_and_is_not_a_retry() -> None:
    cluster = ClusterDouble(role(max_retries=1), role("reader"))
    for attempt in ("1", "2"):
        disrupt(cluster, "reader")
        cluster.step(2)
        cluster.finish_deletions()
        cluster.step()
        assert cluster.annotations_of()[RESTARTS] == attempt
        assert cluster.annotations_of()[supervisor.DISRUPTIONS] == attempt
        assert cluster.annotations_of()[REASON] == (
            "restart after a disruption: role 'reader': Pod default/reader-0 has condition"
            " DisruptionTarget"
        )
        assert cluster.job("trainer")["metadata"]["annotations"][RESTARTS] == attempt
    cluster.end("trainer")
    cluster.step(2)
    cluster.finish_deletions()
    cluster.step()
    assert cluster.annotations_of()[REASON] == "restart 1 of 1: role 'trainer' failed: R: m"
    cluster.end("trainer")
    cluster.step()
    assert cluster.annotations_of()[ENDED] == "role 'trainer' failed after 1 restart: R: m"


class PodsDouble(ClusterDouble):
    """An app with the option ``requeue``, and its pods."""

    def __init__(self, *roles: Role, **cfg: Any) -> None:
        super().__init__(*roles, requeue=True, **cfg)
        self.pods: list[dict[str, Any]] = []
        #: The names of pods that were patched.
        self.kept: list[str] = []
        #: The events that a watch returns, and its paths.
        self.events: list[Any] = []
        self.watched: list[str] = []

    def add(self, name: str, attempt: int = 0, **status: Any) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
        if attempt:
            metadata["annotations"] = {RESTARTS: str(attempt)}
        status = {"startTime": "2026-01-01T00:00:00Z", "phase": "Running", **status}
        self.pods.append(
            {"metadata": metadata, "spec": {"nodeName": f"on-{name}"}, "status": status}
        )
        return self.pods[-1]

    def call(self, method: str, path: str, body: Any = None, *, is_watch: bool = False) -> Any:
        _, _, rest = path.partition("/namespaces/default/")
        if is_watch:
            self.watched.append(path)
            return {"items": self.events}
        if rest.startswith("pods?labelSelector="):
            return {"metadata": {"resourceVersion": "1"}, "items": self.pods}
        if rest.startswith("pods/"):
            assert body["metadata"]["ownerReferences"][0]["name"] == self.app
            self.kept.append(rest.partition("/")[2])
            return {}
        return super().call(method, path, body)

    @property
    def attempts(self) -> Any:
        return json.loads(self.annotations_of().get(supervisor.ATTEMPTS, "[]"))

    def start_again(self) -> dict[str, Any]:
        """Run the steps after a failure; return the container of the next attempt's first role."""
        self.step(2)
        self.finish_deletions()
        self.step()
        self.pods.clear()
        found: dict[str, Any] = self.job("trainer")["spec"]["template"]["spec"]
        return found


def test_attempts_are_noted_and_know_why_the_last_one_ended() -> None:
    cluster = PodsDouble(role(env={"A": "b"}), role("reader"), time="60s", max_total_time="70s")
    assert cluster.step() is None
    assert cluster.attempts == []
    cluster.add("a", reason="DeadlineExceeded", phase="Failed", startTime="2026-01-01T00:00:10Z")
    cluster.add("b", phase="Succeeded")["metadata"]["deletionTimestamp"] = "now"
    cluster.step()
    assert cluster.attempts == [[1767225600, None, None, None, []]]
    cluster.end("trainer", when="2026-01-01T00:01:00Z")
    spec = cluster.start_again()
    assert cluster.attempts == [[1767225600, 1767225660, "time-limit", None, ["on-a", "on-b"]]]
    env = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
    assert env["TORCHX_ATTEMPT"] == "1"
    assert env["TORCHX_RESTART_REASON"] == "time-limit"
    assert env["A"] == "b"
    assert spec["activeDeadlineSeconds"] == 10
    assert cluster.kept == ["a"]  # the cluster deletes the other pod
    template = cluster.job("trainer")["spec"]["template"]
    assert template["metadata"]["annotations"][supervisor.ATTEMPT] == "1"
    cluster.add("c", attempt=1, startTime="2026-01-01T00:02:00Z")
    for part in ("trainer", "reader"):
        cluster.end(part, "Complete")
        cluster.job(part)["status"]["completionTime"] = "2026-01-01T00:02:05Z"
    assert cluster.step() == 0
    assert cluster.attempts[1] == [1767225720, 1767225725, "succeeded", None, ["on-c"]]


def test_nodes_are_noted_as_far_as_annotations_have_space() -> None:
    cluster = PodsDouble(role(max_retries=20))
    for attempt in range(12):
        for pod in range(101 if attempt == 11 else 1):
            cluster.add(f"a{attempt}-{pod}", attempt)
        disrupt(cluster, "trainer")
        cluster.start_again()
    nodes = [one[-1] for one in cluster.attempts]
    assert nodes == [[], [], *([f"on-a{attempt}-0"] for attempt in range(2, 11)), []]


def test_a_budget_that_is_used_up_ends_the_app() -> None:
    cluster = PodsDouble(role(max_retries=1), role("reader"), max_node_failures=1)
    lost = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    for attempt in range(2):
        cluster.add("a", attempt, conditions=[lost])
        disrupt(cluster, "trainer")
        cluster.start_again()
    assert [one[2] for one in cluster.attempts] == ["node-failure"] * 2
    assert cluster.annotations_of()[RESTARTS] == "1"
    assert cluster.annotations_of()[supervisor.DISRUPTIONS] == "1"
    assert cluster.annotations_of()[ENDED].endswith(NODE_FAILURES)


def test_a_suspension_by_a_queue_is_a_preemption() -> None:
    cluster = PodsDouble(role(), job_api="batch", queue="team")
    cluster.end("trainer", "Suspended")
    assert cluster.step() is None
    assert cluster.attempts == []
    cluster.job("trainer")["spec"]["suspend"] = False
    cluster.add("a")
    cluster.step()
    cluster.job("trainer")["spec"]["suspend"] = True
    cluster.start_again()
    assert cluster.attempts[0][2] == "preempted"
    assert cluster.job("trainer")["spec"]["suspend"] is True


def test_pods_are_watched_during_the_pause() -> None:
    cluster = PodsDouble(role())
    pod = cluster.add("a")
    found = cluster.supervisor()
    found.step()
    cluster.events = [
        {"type": "MODIFIED", "object": pod},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    ]
    found.wait()
    cluster.events = [{"type": "ERROR", "object": {"code": 410}}]
    found.wait()
    assert "resourceVersion=1&timeoutSeconds=3" in cluster.watched[0]
    assert "resourceVersion=9&timeoutSeconds=3" in cluster.watched[1]
    assert found._pods_version == ""  # the next step lists the pods


def test_the_end_does_not_wait_for_queued_jobs() -> None:
    cluster = ClusterDouble(role(), role("reader"))
    cluster.job("reader")["spec"]["suspend"] = True
    cluster.end("trainer")
    assert cluster.step(2) == 0
    assert cluster.job("reader")["spec"]["activeDeadlineSeconds"] == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"spec": {"suspend": True}}, TERMINATED),
        ({"metadata": {"annotations": {supervisor.CANCELLED: "now"}}}, 0),
        ({"metadata": {"deletionTimestamp": "now"}}, 0),
        (None, 0),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_cancelled_or_deleted_app_is_not_restarted(
    change: dict[str, Any] | None, code: int, late: bool
) -> None:
    cluster = two_roles()
    del cluster.jobs[f"{cluster.app}-trainer"]
    seen = itertools.count()

    def end(method: str, name: str) -> None:
        # The supervisor reads its own Job at the start of a step, and again before it creates a
        # Job; `late` selects the second time.
        if (method, name) == ("GET", cluster.app) and next(seen) == late:
            if change is None:
                del cluster.jobs[cluster.app]
                return
            for part, fields in change.items():
                cluster.job("")[part].update(fields)

    cluster.before = end
    with pytest.raises(SystemExit) as ended:
        cluster.step()
    assert ended.value.code == code
    assert "POST" not in {method for method, _ in cluster.requests}


def test_status_names_the_first_failure() -> None:
    jobs = []
    for name, when in (("x", "2026-01-01T00:00:05Z"), ("y", "2026-01-01T00:00:04Z")):
        jobs.append(role_job(name, "Failed", most=1))
        jobs[-1]["status"]["conditions"][0]["lastTransitionTime"] = when
    supervision = BATCH.view("a", [supervisor_job(roles=2), *jobs]).supervision
    assert supervision is not None
    assert supervision.restart_reason == "restart 1 of 1: role 'y' failed: R: m"


def test_the_reason_of_a_failure_leaves_out_the_rule() -> None:
    told = {
        "type": "Failed",
        "status": "True",
        "reason": "PodFailurePolicy",
        "message": "Container a for pod n/p failed with exit code 3 matching FailJob rule at"
        " index 1",
    }
    job = {"metadata": {}, "status": {"conditions": [told]}}
    assert supervisor.failure(job) == "Container a for pod n/p failed with exit code 3"
    # the status of the app shows the same reason
    own = supervisor_job()
    view = BATCH.view("a", [own, role_job("x", conditions=[told])])
    assert view.supervision is not None
    reason = "role 'x' failed: Container a for pod n/p failed with exit code 3"
    assert view.supervision.restart_reason.endswith(reason)


@pytest.fixture
def server(api: ApiDouble, tmp_path: Path) -> Iterator[supervisor.Server]:
    """The program's connection, without TLS; integration tests use TLS."""
    config = yaml.safe_load(api.kubeconfig.read_text())
    host, _, port = config["clusters"][0]["cluster"]["server"].rpartition("/")[2].partition(":")
    found = supervisor.Server(host, int(port), str(tmp_path))
    found._connection = http.client.HTTPConnection(host, int(port))  # type: ignore[assignment]
    (tmp_path / "token").write_text("first\n")
    yield found
    found.close()


NOT_FOUND = {"kind": "Status", "reason": "NotFound", "message": 'jobs "x" not found'}


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((404, b"404 page not found\n"), UnreachableError, "GET /x: 404 404 page not found"),
        ((200, b"<html>"), UnreachableError, "GET /x: 200 <html>"),
        ((200, b"[]"), UnreachableError, "GET /x: 200 []"),
        ((503, b"starting"), UnreachableError, "GET /x: 503 starting"),
        ((429, {"message": "too many"}), UnreachableError, "GET /x: 429 too many"),
        ((409, {"message": "a\nb"}), ChangedError, "GET /x: 409 a b"),
        ((403, {"message": "no"}), RefusedError, "GET /x: 403 no"),
        ((422, {"message": "wrong"}), RefusedError, "GET /x: 422 wrong"),
        ((410, {"message": "too old"}), UnreachableError, "GET /x: 410 too old"),
        (None, UnreachableError, "GET /x: RemoteDisconnected"),
    ],
)
def test_responses_of_the_api_server(
    api: ApiDouble, server: supervisor.Server, answer: Any, error: type[Exception], words: str
) -> None:
    api.answer("GET", "/x", answer)
    with pytest.raises(error) as caught:
        server.call("GET", "/x")
    assert str(caught.value).startswith(words)


def test_events_of_a_watch(api: ApiDouble, server: supervisor.Server) -> None:
    api.answer("GET", "/x", (200, b'{"type": "A"}\n{"type": "B"}\n'))
    assert server.call("GET", "/x", is_watch=True) == {"items": [{"type": "A"}, {"type": "B"}]}
    api.answer("GET", "/x", (200, b"<html>"))
    with pytest.raises(UnreachableError, match="200 <html>"):
        server.call("GET", "/x", is_watch=True)


def test_requests_of_the_program(api: ApiDouble, server: supervisor.Server, tmp_path: Path) -> None:
    api.answer("GET", "/x", {"a": 1})
    api.answer("GET", "/none", (404, NOT_FOUND))
    api.answer("PATCH", "/x", {})
    assert server.call("GET", "/x") == {"a": 1}
    # the token is read for each request
    (tmp_path / "token").write_text("second")
    assert server.call("GET", "/none") is None
    assert server.call("PATCH", "/x", {"b": "\u00fc"}) == {}
    assert [one.token for one in api.requests] == ["Bearer first", "Bearer second", "Bearer second"]
    assert api.requests[-1].body == {"b": "\u00fc"}
    (tmp_path / "token").unlink()
    with pytest.raises(RefusedError, match="this pod has no token of a service account"):
        server.call("GET", "/x")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []
    clock = itertools.count(0, 4)
    monkeypatch.setattr(supervisor.time, "sleep", found.append)
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(supervisor.signal, "signal", lambda *_: None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    return found


def run(monkeypatch: pytest.MonkeyPatch, cluster: ClusterDouble) -> int:
    monkeypatch.setattr(supervisor, "Server", lambda *_: cluster)
    return supervisor.main([cluster.app, "default"])


def test_an_unreachable_api_server_is_retried(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    cluster = two_roles()
    calls = itertools.count()

    def away(method: str, name: str) -> None:
        at = next(calls)
        if 8 <= at < 16:
            raise UnreachableError("no answer")
        if at > 20:
            cluster.end("trainer", "Complete")
            cluster.end("reader", "Complete")

    cluster.before = away
    assert run(monkeypatch, cluster) == 0
    # the first two pauses follow complete steps; the third step meets the outage
    assert slept[2:10] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert slept[0] == pytest.approx(3.2)
    assert RESTARTS not in cluster.annotations_of()


@pytest.mark.parametrize("error", [RefusedError("GET x: 403 no"), UnreachableError("no route")])
def test_the_program_gives_up_if_no_step_ever_succeeds(
    monkeypatch: pytest.MonkeyPatch,
    slept: list[float],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    cluster = two_roles()

    def fail(method: str, name: str) -> None:
        raise error

    cluster.before = fail
    assert run(monkeypatch, cluster) == supervisor.REFUSED
    # the log becomes the reason in the status
    assert capsys.readouterr().out.splitlines() == [str(error)]
    assert len(slept) == 2


def test_a_later_refusal_is_annotated_and_retried(
    monkeypatch: pytest.MonkeyPatch, slept: list[float]
) -> None:
    cluster = two_roles()
    cluster.end("trainer")
    refused = []

    def refuse(method: str, name: str) -> None:
        cluster.finish_deletions()
        if method == "POST" and len(refused) < 9:
            refused.append(cluster.annotations_of().get(TROUBLE))
            raise RefusedError("POST x: 403 exceeded quota")
        if method == "POST" and name == "":
            assert cluster.annotations_of()[TROUBLE] == "POST x: 403 exceeded quota"
        elif len(refused) == 9 and TROUBLE not in cluster.annotations_of():
            for part in ("trainer", "reader"):
                cluster.end(part, "Complete")

    cluster.before = refuse
    assert run(monkeypatch, cluster) == 0
    assert refused == [None, *["POST x: 403 exceeded quota"] * 8]
    assert cluster.annotations_of()[RESTARTS] == "1"


# Tests of the status.


def supervisor_job(*true: str, roles: int = 1, **notes: str) -> dict[str, Any]:
    found = {ANNOTATION_ROLES: str(roles), labels.ANNOTATION_APP_NAME: "app"}
    found.update({f"torchx.pytorch.org/{key.replace('_', '-')}": v for key, v in notes.items()})
    conditions = [{"type": t, "status": "True", "reason": "Why", "message": "so"} for t in true]
    return {
        "metadata": {
            "name": "a",
            "labels": {LABEL_PART: "supervisor"},
            "annotations": found,
        },
        "spec": {"template": {"spec": {"serviceAccountName": "a"}}},
        "status": {"conditions": conditions, **({} if true else {"active": 1})},
    }


INDICES = {"x": "0", "y": "1"}


def role_job(name: str, *true: str, attempt: int = 0, most: int = 0, **status: Any) -> Any:
    notes = {labels.ANNOTATION_ROLE_NAME: name, MAX_RESTARTS: str(most)}
    if attempt:
        notes[RESTARTS] = str(attempt)
    conditions = [{"type": t, "status": "True", "reason": "R", "message": "m"} for t in true]
    return {
        "metadata": {
            "name": f"a-{name}",
            "labels": {
                LABEL_PART: "replica",
                labels.LABEL_ROLE_INDEX: str("xyz".find(name)),
            },
            "annotations": notes,
        },
        "spec": {"completions": 1, "template": {}},
        "status": {"conditions": conditions, **status},
    }


def leaving(job: dict[str, Any]) -> dict[str, Any]:
    job["metadata"]["deletionTimestamp"] = "now"
    return job


AGAIN = {"restarts": "1", "restart_reason": "restart 1 of 2: why"}


@pytest.mark.parametrize(
    ("own", "jobs", "state", "told"),
    [
        (supervisor_job(), [role_job("x", ready=1)], R, ("", "")),
        (supervisor_job(), [role_job("x", "Complete")], S, ("", "")),
        # a role has failed, but the supervisor has not decided yet
        (
            supervisor_job(),
            [role_job("x", "Failed", most=2)],
            P,
            ("restart 1 of 2: role 'x' failed: R: m", ""),
        ),
        (supervisor_job(), [role_job("x", "Failed")], P, ("role 'x' failed: R: m", "")),
        (
            supervisor_job(roles=2),
            [role_job("x", "Failed", most=2), role_job("y", ready=1)],
            R,
            ("restart 1 of 2: role 'x' failed: R: m", ""),
        ),
        # the previous attempt is being deleted, and the next attempt exists only in part
        (supervisor_job(**AGAIN), [role_job("x", "Complete")], P, ("restart 1 of 2: why", "")),
        (
            supervisor_job(roles=2, **AGAIN),
            [leaving(role_job("x", "Failed")), role_job("y", ready=1, attempt=1)],
            R,
            ("restart 1 of 2: why", ""),
        ),
        (supervisor_job(roles=2, **AGAIN), [], P, ("restart 1 of 2: why", "")),
        (supervisor_job(roles=2), [role_job("x", "Complete", attempt=1)], P, ("", "")),
        (supervisor_job(**AGAIN), [role_job("x", ready=1, attempt=1)], R, ("", "")),
        # the app has ended
        (supervisor_job(ended="why"), [role_job("x", "Failed")], F, ("", "why")),
        (supervisor_job(roles=2, ended="why"), [role_job("x", ready=1)], F, ("", "why")),
        (
            supervisor_job(cancelled="today"),
            [role_job("x", "Failed", most=3)],
            C,
            ("", "cancelled today"),
        ),
        (supervisor_job(cancelled="today"), [], C, ("", "cancelled today")),
        (supervisor_job(cancelled="today"), [role_job("x", "Complete")], S, ("", "")),
        # the supervisor has failed
        (
            supervisor_job("Failed"),
            [role_job("x", "Failed", most=3)],
            F,
            ("the app's supervisor failed (Why: so): the app is not restarted", "R: m"),
        ),
        (
            supervisor_job("Failed"),
            [role_job("x", ready=1)],
            R,
            ("the app's supervisor failed (Why: so): the app is not restarted", ""),
        ),
        (supervisor_job("Complete", roles=2), [role_job("x", "Complete")], S, ("", "")),
        (
            supervisor_job(trouble="DELETE: 403"),
            [role_job("x", ready=1)],
            R,
            ("the app's supervisor: DELETE: 403", ""),
        ),
    ],
)
def test_states_of_an_app_with_a_supervisor(
    own: dict[str, Any], jobs: list[dict[str, Any]], state: AppState, told: tuple[str, str]
) -> None:
    view = BATCH.view("a", [*jobs, own])
    assert view.state == state
    assert view.supervision is not None
    assert (view.supervision.restart_reason, view.message) == told
    assert [one.name for one in view.roles] == [
        job["metadata"]["annotations"][labels.ANNOTATION_ROLE_NAME] for job in jobs
    ]
    assert view.objects == [own, *jobs]


def test_a_suspended_supervisor_restarts_nothing() -> None:
    own = supervisor_job()
    own["spec"]["suspend"] = True
    view = BATCH.view("a", [own, role_job("x", "Failed", most=3)])
    assert view.supervision is not None
    assert (view.state, view.supervision.is_active) == (F, False)
    reason = "the app's supervisor is suspended: the app is not restarted"
    assert view.supervision.restart_reason == reason


def test_a_role_ended_because_of_another_has_failed() -> None:
    job = role_job("y", "Failed")
    job["metadata"]["annotations"][ENDED] = "role 'x' failed"
    view = BATCH.view("a", [supervisor_job(roles=2, ended="role 'x' failed"), job])
    assert [one.state for one in view.roles] == [F]
    assert view.message == "role 'x' failed"


JOBS = "/apis/batch/v1/namespaces/team/jobs"
PODS = "/api/v1/namespaces/team/pods"


def test_missing_jobs_are_read_from_the_config_map(api: ApiDouble) -> None:
    manifests = [role_job("x", most=2), role_job("y")]
    for one in manifests:
        one.pop("status")
    api.answer("GET", JOBS, {"items": [supervisor_job(roles=2, **AGAIN), role_job("y", attempt=1)]})
    api.answer("GET", "/configmaps/a", {"data": {"jobs.json": json.dumps(manifests)}})
    api.answer("GET", PODS, {"items": []})
    api.answer("GET", "/events", {"items": []})
    found = create_scheduler("t").describe("team:a")
    assert found is not None
    assert [(one.name, one.max_retries) for one in found.roles] == [("x", 2), ("y", 0)]
    assert (found.state, found.num_restarts) == (P, 1)
    assert found.msg == "restart 1 of 2: why"
    # no roles are added if the config map is forbidden, was replaced or was deleted
    for answer in ((403, {"message": "no"}), {"data": {}}, {"data": {"jobs.json": "["}}, (404, {})):
        api.answer("GET", "/configmaps/a", answer)
        found = create_scheduler("t").describe("team:a")
        assert found is not None
        assert [one.name for one in found.roles] == ["y"]


def own_pod(phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a-abcde", "labels": {LABEL_PART: "supervisor"}},
        "spec": {"containers": [{"name": "supervisor"}], "restartPolicy": "Never"},
        "status": {"phase": phase, **status},
    }


@pytest.mark.parametrize(
    ("pods", "events", "told"),
    [
        ([own_pod("Running")], [], ""),
        (
            [
                own_pod(
                    "Pending",
                    containerStatuses=[
                        {"name": "supervisor", "state": {"waiting": {"reason": "ErrImagePull"}}}
                    ],
                )
            ],
            [],
            (
                "the app's supervisor does not run: ErrImagePull: the image cannot be pulled;"
                " check its name and the right to pull it"
            ),
        ),
        (
            [
                own_pod(
                    "Failed",
                    containerStatuses=[
                        {
                            "name": "supervisor",
                            "state": {"terminated": {"exitCode": 1, "message": "no token\n"}},
                        }
                    ],
                )
            ],
            [],
            "the app's supervisor does not run: exit code 1: no token",
        ),
        (
            [],
            [
                {"type": "Warning", "reason": "FailedCreate", "message": "no account"},
                {"type": "Warning", "reason": "Failed", "message": "Error"},
            ],
            "the app's supervisor does not run: FailedCreate: no account",
        ),
    ],
)
def test_describe_says_why_the_supervisor_does_not_run(
    api: ApiDouble, pods: list[Any], events: list[Any], told: str
) -> None:
    own = supervisor_job()
    if not pods:
        own["status"] = {"startTime": "then"}
    api.answer("GET", JOBS, {"items": [own, role_job("x", ready=1)]})
    api.answer("GET", PODS, {"items": pods})
    api.answer(
        "GET",
        "/events",
        lambda request: {"items": events if ".name=a," in request.query["fieldSelector"] else []},
    )
    found = create_scheduler("t").describe("team:a")
    assert found is not None
    assert found.state == R
    assert found.msg == (told or "<NONE>")


# Tests of submission, cancellation and deletion.


def submitted(api: ApiDouble, **cfg: Any) -> list[tuple[str, str, Any]]:
    made = itertools.count()

    def create(request: Any) -> Any:
        return 201, {
            **request.body,
            "metadata": {**request.body["metadata"], "uid": f"u{next(made)}"},
        }

    api.answer("POST", "", create)
    api.answer("PATCH", "", {})
    cfg = {"retry_policy": "APPLICATION", "namespace": "team", "validate_spec": False, **cfg}
    create_scheduler("t").submit(AppDef("app", [role(), role("reader")]), cfg)
    return [
        (one.method, one.path.rpartition("namespaces/team/")[2].partition("/")[0], one.body)
        for one in api.requests
        if "dryRun" not in one.query and one.method != "GET"
    ]


def test_the_supervisor_is_created_first_and_resumed_last(api: ApiDouble) -> None:
    requests = submitted(api)
    assert [(method, plural) for method, plural, _ in requests] == [
        ("POST", "jobs"),
        ("POST", "configmaps"),
        ("POST", "serviceaccounts"),
        ("POST", "roles"),
        ("POST", "rolebindings"),
        ("POST", "jobs"),
        ("POST", "jobs"),
        ("POST", "services"),
        ("PATCH", "jobs"),
        ("PATCH", "jobs"),
        ("PATCH", "jobs"),
    ]
    own = requests[0][2]
    assert [b["spec"]["suspend"] for _, p, b in requests if p == "jobs"] == [True] * 3 + [False] * 3
    for _, _, body in requests[1:-3]:
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["name"], owner["uid"]) == (own["metadata"]["name"], "u0")
    assert "torchx.pytorch.org/unfinished" in requests[-1][2]["metadata"]["labels"]


def test_the_check_of_a_binding_ignores_its_missing_role(api: ApiDouble) -> None:
    words = 'roles.rbac.authorization.k8s.io "app" not found'

    def bind(request: Any) -> Any:
        if "dryRun" in request.query:
            return 404, {"message": words, "reason": "NotFound"}
        return 201, request.body

    api.answer("POST", "", lambda request: (201, request.body))
    api.answer("POST", "/rolebindings", bind)
    api.answer("PATCH", "", {})
    cfg = {"retry_policy": "APPLICATION", "namespace": "team"}
    assert create_scheduler("t").submit(AppDef("app", [role(), role("reader")]), cfg)


@pytest.mark.parametrize("plural", ["serviceaccounts", "roles", "rolebindings"])
def test_a_user_without_rights_to_create_accounts_gets_a_remedy(
    api: ApiDouble, plural: str
) -> None:
    words = f'{plural} is forbidden: User "u" cannot create resource "{plural}" in API group "x" in'
    words += ' the namespace "team"'
    api.answer("POST", "", lambda request: (201, request.body))
    api.answer("POST", f"/{plural}", (403, {"message": words, "reason": "Forbidden"}))
    api.answer("DELETE", "", {})
    cfg = {"retry_policy": "APPLICATION", "namespace": "team"}
    with pytest.raises(ApiError) as caught:
        create_scheduler("t").submit(AppDef("app", [role(), role("reader")]), cfg)
    assert f"RBAC forbids u to create {plural}" in str(caught.value)
    assert "-cfg restarts_service_account=NAME" in str(caught.value)
    assert not [one for one in api.requests if one.method == "POST" and "dryRun" not in one.query]


@pytest.mark.parametrize("check_first", [True, False])
def test_without_rights_the_app_is_submitted_without_a_supervisor(
    api: ApiDouble, caplog: pytest.LogCaptureFixture, check_first: bool
) -> None:
    words = 'roles is forbidden: User "u" cannot create resource "roles" in API group "x" in'
    words += ' the namespace "team"'
    api.answer("POST", "", lambda request: (201, request.body))
    api.answer("POST", "/roles", (403, {"message": words, "reason": "Forbidden"}))
    api.answer("PATCH", "", {})
    api.answer("DELETE", "", {})
    cfg = {"namespace": "team", "ttl_seconds": 60, "validate_spec": check_first}
    assert create_scheduler("t").submit(AppDef("app", [role(), role("reader")]), cfg)
    assert "RBAC forbids u to create roles" in caplog.text
    assert "if one of its roles fails for good, the others run on" in caplog.text
    posted = [
        one.body for one in api.requests if one.method == "POST" and "dryRun" not in one.query
    ][-3:]
    assert sorted(kinds(posted)) == ["Job", "Job", "Service"]
    ttl = [one["spec"].get("ttlSecondsAfterFinished") for one in posted if one["kind"] == "Job"]
    assert ttl == [60, 60]


def test_cancel_gives_a_supervisor_with_a_ttl_a_deadline(api: ApiDouble) -> None:
    own = supervisor_job()
    own["spec"]["ttlSecondsAfterFinished"] = 60
    ended = supervisor_job("Failed")
    job = role_job("x", ready=1)
    api.answer("GET", JOBS, {"items": [own, job]}, {"items": [ended, job]})
    api.answer("GET", f"{JOBS}/a", own)
    api.answer("PATCH", "", {})
    create_scheduler("t").cancel("team:a")
    patched = [one for one in api.requests if one.method == "PATCH"]
    assert [one.path.rpartition("/")[2] for one in patched] == ["a", "a-x"]
    # a deadline finishes the supervisor's Job, so that the cluster deletes it and the role's Job
    assert patched[0].body["spec"] == {"activeDeadlineSeconds": 1}


def test_a_failed_role_is_final_if_the_supervisor_only_ends_roles() -> None:
    own = supervisor_job()
    del own["metadata"]["annotations"][ANNOTATION_ROLES]
    view = BATCH.view("a", [own, role_job("x", "Failed"), role_job("y", ready=1)])
    assert (view.state, view.runs_again) == (F, False)
    assert view.message == "x: R: m; other roles still run, the supervisor ends them"


def test_cancel_ends_the_supervisor_first(api: ApiDouble) -> None:
    still, idle = supervisor_job(), supervisor_job("Suspended")
    late = role_job("late", attempt=1)
    api.answer(
        "GET",
        JOBS,
        {"items": [supervisor_job(), role_job("x", ready=1)]},
        {"items": [still, late]},
        {"items": [idle, late, leaving(role_job("x", ready=1))]},
    )
    api.answer("PATCH", "", {})
    create_scheduler("t").cancel("team:a")
    patched = [one for one in api.requests if one.method == "PATCH"]
    assert [one.path.rpartition("/")[2] for one in patched] == ["a", "a-late"]
    for one in patched:
        assert one.body["spec"] == {"suspend": True}
        assert labels.ANNOTATION_CANCELLED in one.body["metadata"]["annotations"]


def test_an_interrupted_cancel_can_be_repeated(api: ApiDouble) -> None:
    noted = role_job("y", "Suspended")
    noted["metadata"]["annotations"][labels.ANNOTATION_CANCELLED] = "then"
    items = [supervisor_job(cancelled="then", roles=2), role_job("x", ready=1), noted]
    api.answer("GET", JOBS, {"items": items}, {"items": [items[0], noted]})
    api.answer("PATCH", "", {})
    for _ in range(2):
        create_scheduler("t").cancel("team:a")
    patched = [one.path.rpartition("/")[2] for one in api.requests if one.method == "PATCH"]
    assert patched == ["a-x"]


def test_an_app_that_failed_is_not_cancelled(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [supervisor_job(ended="why"), role_job("x", "Failed")]})
    create_scheduler("t").cancel("team:a")
    assert {one.method for one in api.requests} == {"GET"}


def test_delete_needs_no_right_to_config_maps_without_restarts(api: ApiDouble) -> None:
    own = supervisor_job()
    del own["metadata"]["annotations"][ANNOTATION_ROLES]
    api.answer("GET", JOBS, {"items": [role_job("x"), own]})
    api.answer("DELETE", "", {})
    create_scheduler("t").delete("team:a")
    deleted = [one.path for one in api.requests if one.method == "DELETE"]
    assert any("/rolebindings/" in path for path in deleted)
    assert not any("/configmaps/" in path for path in deleted)


@pytest.mark.parametrize("account", ["a", "robot"])
def test_delete_removes_the_objects_of_the_supervisor(api: ApiDouble, account: str) -> None:
    own = supervisor_job()
    own["spec"]["template"]["spec"]["serviceAccountName"] = account
    api.answer("GET", JOBS, {"items": [role_job("x"), own]})
    api.answer("DELETE", "", {})
    create_scheduler("t").delete("team:a")
    deleted = [
        one.path.rpartition("namespaces/team/")[2] for one in api.requests if one.method == "DELETE"
    ]
    rights = ["rolebindings/a", "roles/a", "serviceaccounts/a"] if account == "a" else []
    assert deleted == ["jobs/a", "jobs/a-x", "services/a", "configmaps/a", *rights]


def test_an_app_may_have_no_supervisor() -> None:
    view: AppView = BATCH.view("a", [role_job("x", "Failed")])
    assert view.supervision is not None
    assert (view.state, view.supervision.supervisor) == (F, None)
