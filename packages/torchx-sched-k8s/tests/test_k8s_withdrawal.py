"""Tests of which Jobs can be withdrawn, and which options are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from torchx_sched_k8s.backends.batch import BATCH
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.ending import withdrawal
from torchx_sched_k8s.ending.withdrawal import (
    has_node,
    is_first,
    is_waiting,
    may_begin,
    was_never_resumed,
)
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_sched_k8s.status.job_states import job_state, progress_of
from torchx_specs import AppState
from torchx_specs.errors import BackendError

QUEUED: dict[str, Any] = {
    "metadata": {"name": "a", "generation": 1, "annotations": {}},
    "spec": {"suspend": True, "parallelism": 1},
    "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("spec", {"suspend": False}),
        # Kueue has admitted the Job and suspended it again
        ("metadata", {"generation": 3}),
        ("metadata", {"deletionTimestamp": "2026-11-23T08:00:00Z"}),
        ("metadata", {"annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}}),
        ("status", {"startTime": "2026-11-23T08:00:00Z"}),
        ("status", {"active": 1}),
        ("status", {"conditions": [{"type": "Failed", "status": "True"}]}),
    ],
)
def test_only_a_job_that_was_never_resumed_is_withdrawn(part: str, changes: dict[str, Any]) -> None:
    assert was_never_resumed(QUEUED)
    job = copy.deepcopy(QUEUED)
    job[part].update(changes)
    assert not was_never_resumed(job)


def test_only_plain_jobs_can_be_withdrawn() -> None:
    scheduler = create_scheduler("test")
    assert scheduler.withdrawal_problem({}) is None
    assert scheduler.withdrawal_problem({"job_api": "batch", "queue": "users"}) is None
    for cfg in ({"queue": "users"}, {"job_api": "jobset"}):
        problem = scheduler.withdrawal_problem(cfg)
        assert problem is not None
        assert "cannot be withdrawn; use job_api=batch" in problem


STARTED: dict[str, Any] = {
    "metadata": {
        "name": "a",
        "uid": "j",
        "resourceVersion": "5",
        "generation": 2,
        "annotations": {},
        "creationTimestamp": "2026-11-23T08:00:00Z",
    },
    "spec": {
        "suspend": False,
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 3,
        "ttlSecondsAfterFinished": 60,
        "selector": {"matchLabels": {"controller-uid": "j"}},
        "template": {"spec": {"containers": [{"name": "main", "image": "x"}]}},
    },
    "status": {
        "startTime": "2026-11-23T08:00:01Z",
        "active": 1,
        "conditions": [{"type": "Suspended", "status": "False"}],
    },
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "a-0-x",
        "uid": "p",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-23T08:00:02Z",
    },
    "spec": {},
    "status": {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
    },
}


def changed(obj: dict[str, Any], part: str, changes: dict[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(obj)
    found[part].update(changes)
    return found


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("spec", {"suspend": True}),
        ("spec", {"parallelism": 2}),
        ("spec", {"completions": 2}),
        ("spec", {"managedBy": "kueue.x-k8s.io/multikueue"}),
        # the Job was suspended and resumed, or an earlier withdrawal has changed it
        ("metadata", {"generation": 4}),
        ("metadata", {"deletionTimestamp": "2026-11-23T08:00:00Z"}),
        ("metadata", {"annotations": {"torchx.pytorch.org/array-names": '["a"]'}}),
        ("status", {"failed": 1}),
        ("status", {"ready": 1}),
        ("status", {"terminating": 1}),
        ("status", {"uncountedTerminatedPods": {"failed": ["q"]}}),
        ("status", {"conditions": [{"type": "FailureTarget", "status": "True"}]}),
    ],
)
def test_only_a_job_of_one_pod_in_its_first_attempt_is_withdrawn(
    part: str, changes: dict[str, Any]
) -> None:
    assert may_begin(STARTED)
    assert not may_begin(changed(STARTED, part, changes))


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("spec", {"nodeName": "n"}),
        ("status", {"startTime": "2026-11-23T08:00:02Z"}),
        ("status", {"containerStatuses": [{"name": "main"}]}),
        ("status", {"phase": "Running"}),
    ],
)
def test_a_pod_with_a_node_may_have_started(part: str, changes: dict[str, Any]) -> None:
    assert not has_node(POD)
    assert has_node(changed(POD, part, changes))


def test_a_pod_that_is_being_deleted_does_not_wait() -> None:
    assert is_waiting(POD)
    assert not is_waiting(changed(POD, "metadata", {"deletionTimestamp": "2026-11-23T08:00:09Z"}))
    assert not is_waiting(changed(POD, "status", {"phase": "Failed"}))


def test_a_pod_that_may_replace_a_disrupted_pod_is_not_the_first() -> None:
    assert is_first(STARTED, POD)
    late = changed(POD, "metadata", {"creationTimestamp": "2026-11-23T08:00:11Z"})
    assert not is_first(STARTED, late)
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    assert not is_first(STARTED, changed(POD, "status", {"conditions": disrupted}))


def withdrawing(**fields: Any) -> dict[str, Any]:
    """Return a Job whose withdrawal was begun; ``fields`` change the recorded progress."""
    progress = {"pod": "p", "spec": {"backoffLimit": 3}, "deleted": False, **fields}
    annotations = {"torchx.pytorch.org/withdrawal": json.dumps(progress)}
    return changed(STARTED, "metadata", {"annotations": annotations, "generation": 3})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[]",
        "{}",
        "[" * 100_000,
        '{"deleted": true}',
        '{"pod": "p", "spec": 1, "deleted": true}',
    ],
    ids=["empty", "number", "list", "mapping", "nested", "no pod", "invalid spec"],
)
def test_a_changed_annotation_is_no_progress(text: str) -> None:
    job = changed(STARTED, "metadata", {"annotations": {"torchx.pytorch.org/withdrawal": text}})
    assert progress_of(job) is None
    failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
    assert job_state(changed(job, "status", {"conditions": failed}))[0] == AppState.FAILED


def test_a_failed_job_is_cancelled_only_if_its_pod_was_deleted_without_a_node() -> None:
    failed = [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
    for job, wanted in (
        (withdrawing(), AppState.FAILED),
        (withdrawing(deleted=True), AppState.CANCELLED),
    ):
        assert job_state(changed(job, "status", {"conditions": failed}))[0] == wanted


class FakeCluster:
    """A fake of Cluster with one Job and its pods, without controllers.

    Its clock advances by 1 second in each pause; ``pauses`` has the actions of the next pauses.

    Args:
        job: The Job.
        pods: The pods.
    """

    def __init__(self, job: dict[str, Any], *pods: dict[str, Any]) -> None:
        self.job = copy.deepcopy(job)
        self.pods = [copy.deepcopy(pod) for pod in pods]
        self.changes: list[str] = []
        self.errors: dict[str, ApiError] = {}
        self.before_delete: Callable[[], object] = lambda: None
        self.pauses: list[Callable[[], object]] = []
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1
        if self.pauses:
            self.pauses.pop(0)()

    def get_or_none(self, path: str, action: str) -> dict[str, Any]:
        return copy.deepcopy(self.job)

    def list_items(self, path: str, action: str, query: dict[str, str]) -> list[dict[str, Any]]:
        assert query == {"labelSelector": "controller-uid=j"}
        return copy.deepcopy(self.pods)

    def patch(self, path: str, changes: Any, action: str, *, version: str | None = None) -> Any:
        self.changes.append("patch")
        if "patch" in self.errors:
            raise self.errors.pop("patch")
        metadata = self.job["metadata"]
        if version != metadata["resourceVersion"]:
            raise ApiError("conflict", 409)
        metadata["resourceVersion"] += "1"
        for found, new in (
            (metadata["annotations"], changes["metadata"]["annotations"]),
            (self.job["spec"], changes.get("spec") or {}),
        ):
            for key, value in new.items():
                found[key] = value
                if value is None:
                    del found[key]

    def delete(self, path: str, action: str, *, preconditions: dict[str, str]) -> bool:
        self.changes.append("delete")
        if "delete" in self.errors:
            raise self.errors.pop("delete")
        self.before_delete()
        for pod in self.pods:
            if path.endswith(f"/pods/{pod['metadata']['name']}"):
                actual = {key: pod["metadata"][key] for key in preconditions}
                if actual != preconditions:
                    raise ApiError("conflict", 409)
                pod["metadata"]["deletionTimestamp"] = "2026-11-23T08:01:00Z"
                pod["metadata"]["resourceVersion"] += "1"
                return True
        return False

    def fail_job(self, failed: int = 1) -> None:
        self.pods = []
        self.job["status"]["failed"] = failed
        self.job["status"]["conditions"].append({"type": "Failed", "status": "True"})


def prevent_start(cluster: FakeCluster) -> bool:
    view = BATCH.view("a", [cluster.job])
    return withdrawal.prevent_start(cluster, "default", view)  # type: ignore[arg-type]


def test_the_job_keeps_no_retries_until_its_deleted_pod_has_failed() -> None:
    cluster = FakeCluster(STARTED, POD)
    seen: list[dict[str, Any]] = []
    look = lambda: seen.append(copy.deepcopy(cluster.job))  # noqa: E731
    cluster.pauses += [look, look, look, cluster.fail_job]
    assert prevent_start(cluster)
    assert [job["spec"]["backoffLimit"] for job in seen] == [0, 0, 0]
    assert all("ttlSecondsAfterFinished" not in job["spec"] for job in seen)
    progress = [progress_of(job) for job in seen]
    assert [one is not None and one.deleted for one in progress] == [False, True, True]
    annotations = cluster.job["metadata"]["annotations"]
    assert "torchx.pytorch.org/withdrawn" in annotations
    assert "torchx.pytorch.org/withdrawal" not in annotations
    assert job_state(cluster.job)[0] == AppState.CANCELLED
    assert cluster.job["spec"] == STARTED["spec"]
    assert prevent_start(cluster)


def test_a_pod_that_is_bound_before_its_deletion_stays() -> None:
    cluster = FakeCluster(STARTED, POD)

    def bind() -> None:
        cluster.pods[0]["spec"]["nodeName"] = "n"
        cluster.pods[0]["metadata"]["resourceVersion"] = "8"

    cluster.before_delete = bind
    assert not prevent_start(cluster)
    assert "deletionTimestamp" not in cluster.pods[0]["metadata"]
    assert cluster.job["spec"] == STARTED["spec"]
    assert cluster.job["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        # the second pod has a node
        (
            withdrawing(deleted=True),
            [changed(changed(POD, "metadata", {"uid": "q"}), "spec", {"nodeName": "n"})],
        ),
        # an earlier replacement may have had a node
        (withdrawing(deleted=True), [changed(POD, "metadata", {"uid": "q"})]),
        # the pod was not deleted by the withdrawal, so it may have had a node
        (withdrawing(), []),
        (withdrawing(), [changed(POD, "metadata", {"uid": "q"})]),
    ],
    ids=["second pod bound", "second pod waits", "pod gone", "pod replaced"],
)
def test_an_uncertain_withdrawal_is_undone(job: dict[str, Any], pods: list[Any]) -> None:
    cluster = FakeCluster(job, *pods)
    assert not prevent_start(cluster)
    assert cluster.changes == ["patch"]
    assert cluster.job["spec"]["backoffLimit"] == 3
    assert cluster.job["metadata"]["annotations"] == {}


def test_a_job_with_a_second_counted_pod_is_not_withdrawn() -> None:
    cluster = FakeCluster(withdrawing(deleted=True))
    cluster.fail_job(failed=2)
    assert not prevent_start(cluster)
    assert job_state(cluster.job)[0] == AppState.FAILED


def test_a_job_that_does_not_fail_in_time_is_an_error() -> None:
    cluster = FakeCluster(STARTED, POD)
    with pytest.raises(BackendError, match="cannot withdraw a: after 30 seconds"):
        prevent_start(cluster)
    found = progress_of(cluster.job)
    assert found is not None
    assert found.deleted
    cluster.fail_job()
    assert prevent_start(cluster)


@pytest.mark.parametrize("request_name", ["patch", "delete"])
def test_without_the_right_the_app_stays(
    request_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = FakeCluster(STARTED, POD)
    cluster.errors[request_name] = ApiError("RBAC forbids it", 403)
    assert not prevent_start(cluster)
    assert "RBAC forbids it; the app stays where it is" in caplog.text
    assert cluster.job["spec"] == STARTED["spec"]
    assert "deletionTimestamp" not in cluster.pods[0]["metadata"]


def test_a_new_pod_gets_time_to_be_scheduled() -> None:
    cluster = FakeCluster(STARTED)
    cluster.pauses.append(lambda: cluster.pods.append(changed(POD, "status", {"conditions": []})))
    cluster.pauses.append(lambda: cluster.pods[0]["spec"].update(nodeName="n"))
    assert not prevent_start(cluster)
    assert cluster.changes == []


def test_a_job_that_gets_no_pod_is_not_withdrawn() -> None:
    cluster = FakeCluster(STARTED)
    assert not prevent_start(cluster)
    assert cluster.changes == []
