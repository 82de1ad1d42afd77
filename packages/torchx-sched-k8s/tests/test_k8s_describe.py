"""Tests of descriptions of apps, from the objects, pods and events that an API server returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx_sched_k8s.cluster.labels import ANNOTATION_CANCELLED, ANNOTATION_NAMES
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


LATE = "2026-01-02T03:04:00Z"


def event(
    reason: str, message: str, kind: str = "Job", uid: str = "job", last: str = STARTED
) -> dict[str, Any]:
    """Return an event in the form of the API."""
    about = {"kind": kind, "uid": uid}
    return {"reason": reason, "message": message, "involvedObject": about, "lastTimestamp": last}


def preempted(api: ApiDouble, *more: dict[str, Any]) -> None:
    """Give the Job two replicas, of which the first was preempted and replaced, and more events."""

    def events(request: Any) -> Any:
        if "involvedObject.name=app-1-main-0-first" in request.query["fieldSelector"]:
            return {"items": [event("Preempted", "by a pod of the queue", "Pod", "x")]}
        if "involvedObject.name=app-1-main," not in request.query["fieldSelector"]:
            return {"items": []}
        names = {"0-first": STARTED, "0-aaaaa": LATE, "1-aaaaa": STARTED}
        created = [
            event("SuccessfulCreate", f"Created pod: app-1-main-{name}", last=when)
            for name, when in names.items()
        ]
        return {"items": [*created, *more]}

    api.answer("GET", EVENTS, events)


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_restarts_after_disruptions_are_known_after_the_end(api: ApiDouble, end: str) -> None:
    code = 0 if end == "Complete" else 3
    ended = job(2, {"conditions": [{"type": end, "status": "True"}]})
    preempted(api)
    api.answer("GET", "/jobs/app-1-main", ended)
    found = described(
        api,
        ended,
        pod(0, "Succeeded", 0, created=LATE),
        pod(1, "Failed" if code else "Succeeded", code),
    )
    assert found.state == (F if code else S)
    assert found.num_restarts == 1
    first = found.roles_statuses[0].replicas[0]
    assert (first.restarts, first.reason) == (1, "preempted: by a pod of the queue, replaced")


def test_restarts_of_a_jobset_are_known_while_the_new_pod_runs(api: ApiDouble) -> None:
    inner = job(2, {})
    template = {"metadata": inner["metadata"], "spec": inner["spec"]}
    jobset = {
        "metadata": {"name": "app-1", "uid": "set", "labels": inner["metadata"]["labels"]},
        "spec": {"replicatedJobs": [{"name": "main", "replicas": 1, "template": template}]},
        "status": {"replicatedJobsStatus": [{"name": "main", "ready": 1}]},
    }

    def events(request: Any) -> Any:
        if "involvedObject.name=app-1-main-0," not in request.query["fieldSelector"]:
            return {"items": []}
        names = ("0-first", "0-aaaaa", "1-aaaaa")
        created = [event("SuccessfulCreate", f"Created pod: app-1-main-0-{n}") for n in names]
        return {"items": created}

    api.answer("GET", EVENTS, events)
    api.answer("GET", "/jobs/app-1-main-0", inner)
    api.answer("GET", JOBS, {"items": []})
    api.answer("GET", "/jobsets/app-1", jobset)
    new = pod(0, "Running", created=LATE, name="app-1-main-0-0-aaaaa")
    old = pod(1, "Running", name="app-1-main-0-1-aaaaa")
    api.answer("GET", PODS, {"items": [new, old]})
    found = create_scheduler("t").describe("default:app-1")
    assert found is not None
    assert (found.state, found.num_restarts) == (R, 1)
    first = found.roles_statuses[0].replicas[0]
    assert first.reason.startswith("evicted: pod app-1-main-0-0-first")


# The Job's own deletions may leave no event, because a cluster keeps few events of one object.
@pytest.mark.parametrize(
    "more", [(), (event("SuccessfulDelete", "Deleted pod: app-1-main-0-aaaaa", last=LATE),)]
)
def test_restarts_are_known_although_the_end_deleted_the_pod(
    api: ApiDouble, more: tuple[dict[str, Any], ...]
) -> None:
    ended = job(2, {"conditions": [{"type": "Failed", "status": "True"}], "failed": 1})
    preempted(api, *more)
    api.answer("GET", "/jobs/app-1-main", ended)
    found = described(api, ended, pod(1, "Failed", 3))
    assert (found.state, found.num_restarts) == (F, 1)
    assert found.msg == "main/1: exit code 3"
    first, second = found.roles_statuses[0].replicas
    assert (first.restarts, first.reason) == (1, "ended because replica 1 failed")
    assert (second.restarts, second.reason) == (0, "exit code 3")


def test_a_replica_that_failed_by_the_deletion_of_its_pod_has_its_own_reason(
    api: ApiDouble,
) -> None:
    conditions = [{"type": "Failed", "status": "True"}]
    ended = job(
        2, {"conditions": conditions, "failedIndexes": "0,1", "failed": 2}, backoffLimitPerIndex=0
    )
    created = event("SuccessfulCreate", "Created pod: app-1-main-0-aaaaa")
    api.answer("GET", EVENTS, {"items": [created]})
    api.answer("GET", "/jobs/app-1-main", ended)
    found = described(api, ended, pod(1, "Failed", 3))
    reasons = [replica.reason for replica in found.roles_statuses[0].replicas]
    deleted = "deleted: pod app-1-main-0-aaaaa was deleted by somebody, not by its Job"
    assert reasons == [deleted, "exit code 3"]


def test_restarts_are_known_after_a_cancellation(api: ApiDouble) -> None:
    refused = event("FailedCreate", "exceeded quota", last="2026-01-02T03:09:00Z")
    cancelled = job(2, {}, suspend=True)
    cancelled["metadata"]["annotations"][ANNOTATION_CANCELLED] = "2026-01-02T03:10:00Z"
    preempted(api, refused)
    api.answer("GET", "/jobs/app-1-main", cancelled)
    found = described(api, cancelled)
    assert (found.state, found.num_restarts) == (AppState.CANCELLED, 1)
    first, second = found.roles_statuses[0].replicas
    assert (first.restarts, first.reason) == (1, "preempted: by a pod of the queue, replaced")
    assert (second.restarts, second.reason) == (0, "")


@pytest.mark.parametrize(
    ("phase", "pod_phase", "state"), [("Completed", "Succeeded", S), ("Failed", "Failed", F)]
)
def test_restarts_of_volcano_are_known_after_the_end(
    api: ApiDouble, phase: str, pod_phase: str, state: AppState
) -> None:
    ended = pod(0, pod_phase, 0 if state == S else 3, created=LATE, name="app-1-main-0")
    template = {"metadata": ended["metadata"], "spec": ended["spec"]}
    volcano = {
        "metadata": {"name": "app-1", "uid": "v", "labels": job(1, {})["metadata"]["labels"]},
        "spec": {"tasks": [{"name": "main", "replicas": 1, "template": template}]},
        "status": {
            "state": {"phase": phase},
            "conditions": [{"status": "Running", "lastTransitionTime": STARTED}],
        },
    }
    earlier = event("Preempted", "by a pod of the queue", "Pod", "earlier")
    api.answer("GET", EVENTS, {"items": [earlier]})
    api.answer("GET", JOBS, {"items": []})
    api.answer("GET", "/jobs/app-1", volcano)
    api.answer("GET", PODS, {"items": [ended]})
    found = create_scheduler("t").describe("default:app-1")
    assert found is not None
    assert (found.state, found.num_restarts) == (state, 1)
    assert found.roles_statuses[0].replicas[0].restarts == 1


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
