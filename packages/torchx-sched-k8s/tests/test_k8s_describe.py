"""Tests of descriptions of apps, from the objects, pods and events that an API server returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx_sched_k8s.cluster.labels import ANNOTATION_NAMES
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.schedulers import DescribeAppResponse
from torchx_specs.schedulers.sessions import ReplicaNotRunningError

# This name stands for a class of conftest.py, which tests cannot import.
ApiDouble = Any

P, R, S, F = AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED, AppState.FAILED

JOBS, PODS, EVENTS = "/namespaces/default/jobs", "/namespaces/default/pods", "/events"
CFG = {"namespace": "default"}
STARTED = "2026-01-02T03:00:00Z"


def job(replicas: int, status: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a Job in the form of the API."""
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "true"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "app-1-main",
            "uid": "job",
            "labels": {
                "app.kubernetes.io/instance": "app-1",
                "torchx.pytorch.org/role-name": "main",
                "torchx.pytorch.org/role-index": "0",
            },
            "annotations": {},
        },
        "spec": {
            "completions": replicas,
            "backoffLimit": 0,
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
        "status": {"startTime": STARTED, **status},
    }


def pod(index: int, phase: str, code: int | None = None, **fields: Any) -> dict[str, Any]:
    """Return a pod of the Job in the form of the API.

    Args:
        index: Index of the replica.
        phase: Phase of the pod.
        code: Exit code of the container; None if it runs.
        **fields: ``created`` (time), ``others`` (container statuses), ``conditions``, ``name``.
    """
    state: dict[str, Any] = {"running": {"startedAt": STARTED}}
    if code is not None:
        ends = {"startedAt": STARTED, "finishedAt": "2026-01-02T03:05:00Z"}
        state = {"terminated": {"exitCode": code, **ends}}
    main = {"name": "main", "restartCount": 0, "state": state}
    return {
        "metadata": {
            "name": fields.get("name", f"app-1-main-{index}-aaaaa"),
            "uid": fields.get("name", f"pod-{index}"),
            "creationTimestamp": fields.get("created", STARTED),
            "labels": {
                "torchx.pytorch.org/role-index": "0",
                "torchx.pytorch.org/role-name": "main",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
            "annotations": {"torchx.pytorch.org/container": "main"},
        },
        "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never", "nodeName": "n"},
        "status": {
            "phase": phase,
            "containerStatuses": [*fields.get("others", ()), main],
            "conditions": fields.get("conditions", []),
        },
    }


def described(
    api: ApiDouble, found: dict[str, Any], *pods: dict[str, Any], app_id: str = "default:app-1"
) -> DescribeAppResponse:
    api.answer("GET", JOBS, {"items": [found]})
    api.answer("GET", PODS, {"items": list(pods)})
    described = create_scheduler("t").describe(app_id)
    assert described is not None
    return described


def states(found: DescribeAppResponse) -> list[AppState]:
    return [replica.state for replica in found.roles_statuses[0].replicas]


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({}, {"ready": 1, "active": 1}),
        # the Job controller has not counted the pod yet
        ({}, {"active": 2}),
        ({"backoffLimit": 1}, {"failed": 2}),
        ({"backoffLimit": 2147483647, "backoffLimitPerIndex": 0}, {"active": 1}),
    ],
)
def test_a_replica_that_failed_for_good_is_failed_before_its_job(
    api: ApiDouble, spec: dict[str, Any], status: dict[str, Any]
) -> None:
    found = described(api, job(2, status, **spec), pod(0, "Failed", 7), pod(1, "Pending"))
    assert states(found) == [F, P]
    assert found.state == R
    assert found.msg == "main/0: exit code 7"


@pytest.mark.parametrize(
    "spec",
    [
        {"backoffLimit": 1},
        {"backoffLimit": 9, "backoffLimitPerIndex": 1},
        # a rule of the user may ignore the exit code
        {"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {}}]}},
    ],
)
def test_a_failed_replica_with_attempts_left_is_pending(
    api: ApiDouble, spec: dict[str, Any]
) -> None:
    found = described(api, job(1, {"failed": 1}, **spec), pod(0, "Failed", 7))
    assert states(found) == [P]
    assert found.state == P


def test_ended_replicas_do_not_make_an_app_pending(api: ApiDouble) -> None:
    found = described(api, job(2, {"active": 1}), pod(0, "Succeeded", 0), pod(1, "Pending"))
    assert (states(found), found.state) == ([S, P], R)


def test_an_app_that_kueue_has_suspended_again_is_pending(api: ApiDouble) -> None:
    suspended = job(2, {"completedIndexes": "0"}, suspend=True)
    suspended["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "users"
    found = described(api, suspended, pod(0, "Succeeded", 0))
    assert found.state == P
    assert "queue users" in found.msg


@pytest.mark.parametrize(
    ("code", "state", "message"),
    [
        (0, S, "main/0: the pod does not end, because 'istio-proxy' still runs"),
        (7, F, "main/0: exit code 7; the pod does not end, because 'istio-proxy' still runs"),
    ],
)
def test_a_container_that_keeps_a_pod_from_ending_is_named(
    api: ApiDouble, code: int, state: AppState, message: str
) -> None:
    others = [{"name": "istio-proxy", "state": {"running": {"startedAt": STARTED}}}]
    found = described(api, job(1, {"active": 1}), pod(0, "Running", code, others=others))
    assert states(found) == [state]
    assert (found.state, found.msg) == (R, message)


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_restarts_after_disruptions_are_known_after_the_end(api: ApiDouble, end: str) -> None:
    def event(reason: str, message: str, kind: str = "Job", name: str = "") -> dict[str, Any]:
        about = {"kind": kind, "name": name, "uid": "job" if kind == "Job" else "x"}
        return {"reason": reason, "message": message, "involvedObject": about}

    def events(request: Any) -> Any:
        if "involvedObject.name=app-1-main-0-first" in request.query["fieldSelector"]:
            return {"items": [event("Preempted", "by a pod of the queue", "Pod")]}
        created = [f"Created pod: app-1-main-{name}" for name in ("0-first", "0-aaaaa", "1-aaaaa")]
        return {"items": [event("SuccessfulCreate", text) for text in created]}

    code = 0 if end == "Complete" else 3
    ended = job(2, {"conditions": [{"type": end, "status": "True"}]})
    late = "2026-01-02T03:04:00Z"
    api.answer("GET", EVENTS, events)
    api.answer("GET", "/jobs/app-1-main", ended)
    found = described(
        api,
        ended,
        pod(0, "Succeeded", 0, created=late),
        pod(1, "Failed" if code else "Succeeded", code),
    )
    assert found.state == (F if code else S)
    assert found.num_restarts == 1
    first = found.roles_statuses[0].replicas[0]
    assert (first.restarts, first.reason) == (1, "preempted: by a pod of the queue, replaced")


def test_an_element_has_its_own_role_and_times(api: ApiDouble) -> None:
    array = job(2, {"succeeded": 1, "completedIndexes": "1", "active": 1})
    array["metadata"]["annotations"][ANNOTATION_NAMES] = json.dumps(["run", "-a", "-b"])
    array["spec"]["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", ". x", "torchx"]
    scripts = {"0": "exec other\n", "1": "export LR='0.1 x'\nexec python -m train '$HOME'\n"}
    api.answer("GET", "/configmaps/app-1", {"data": scripts})
    ended = pod(1, "Succeeded", 0)
    found = described(api, array, ended, app_id="default:app-1.1")
    (role,) = found.roles
    assert (role.entrypoint, role.args) == ("python", ["-m", "train", "$HOME"])
    assert role.env["LR"] == "0.1 x"
    assert found.started is not None
    assert found.ended is not None
    assert (found.ended - found.started).total_seconds() == 300
    api.answer("GET", PODS, {"items": [pod(0, "Running"), ended]})
    listed = {app.app_id.rpartition(".")[2]: app for app in create_scheduler("t").list(CFG)}
    assert (listed["1"].started, listed["1"].ended) == (found.started, found.ended)
    assert (listed["0"].started, listed["0"].ended) == (found.started, None)


def test_exec_between_two_attempts_names_the_failure(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job(1, {"failed": 1}, backoffLimit=1)]})
    api.answer("GET", PODS, {"items": [pod(0, "Failed", 7)]})
    sessions = create_scheduler("t").app_sessions
    with pytest.raises(ReplicaNotRunningError, match=r"waits for its next attempt .*exit code 7"):
        sessions.open("default:app-1", "main", 0, ["sh"])


@pytest.mark.parametrize("api_cfg", [{}, {"job_api": "jobset"}])
@pytest.mark.parametrize("least", [2, None])
def test_without_retries_an_elastic_role_survives_failures(
    api_cfg: dict[str, str], least: int | None
) -> None:
    role = Role("main", "busybox", entrypoint="sh", num_replicas=4, min_replicas=least)
    request = create_scheduler("t").submit_dryrun(AppDef("app", [role]), api_cfg).request
    spec = request.objects[-1]["spec"]
    if "job_api" in api_cfg:
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    wanted = (0, 2, None) if least else (None, None, 0)
    fields = ("backoffLimitPerIndex", "maxFailedIndexes", "backoffLimit")
    assert tuple(spec.get(field) for field in fields) == wanted
