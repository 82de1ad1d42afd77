"""Tests of the states, reasons and times that are read from the objects of a cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from torchx_sched_k8s.backends.batch import BATCH
from torchx_sched_k8s.backends.jobset import JOBSET
from torchx_sched_k8s.backends.volcano import VOLCANO, is_ours
from torchx_sched_k8s.cluster.labels import ANNOTATION_CANCELLED
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.pods import Place, make_pod
from torchx_sched_k8s.status.describe import described_role
from torchx_sched_k8s.status.pod_states import latest, read_pod
from torchx_sched_k8s.status.views import (
    RoleView,
    combined,
    creation,
)
from torchx_specs import AppState, BindMount, DeviceMount, Resource, Role, VolumeMount

P, R, S, F = AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED, AppState.FAILED


def pod(phase: str, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a-main-3-xyz12", "creationTimestamp": "2024-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
        "status": {"phase": phase, **status},
    }


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "restartCount": 0, "state": state}]}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available:\n 3 Insufficient cpu.",
}
PREEMPTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "preempting for another",
}
EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "low on memory",
}


@pytest.mark.parametrize(
    ("found", "state", "reason", "code"),
    [
        (pod("Pending"), P, "", None),
        (pod("Pending", **container(waiting={"reason": "ContainerCreating"})), P, "", None),
        (
            pod("Pending", conditions=[UNSCHEDULABLE]),
            P,
            "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.",
            None,
        ),
        (
            pod("Pending", **container(waiting={"reason": "ImagePullBackOff", "message": "no"})),
            P,
            "ImagePullBackOff: no",
            None,
        ),
        (
            pod("Pending", **container(waiting={"reason": "CreateContainerConfigError"})),
            P,
            "CreateContainerConfigError",
            None,
        ),
        (
            pod(
                "Pending",
                initContainerStatuses=[
                    {"name": "i", "state": {"waiting": {"reason": "ErrImagePull"}}}
                ],
            ),
            P,
            "ErrImagePull",
            None,
        ),
        (pod("Running", **container(running={})), R, "", None),
        (
            pod("Succeeded", **container(terminated={"exitCode": 0, "reason": "Completed"})),
            S,
            "",
            0,
        ),
        (
            pod("Failed", **container(terminated={"exitCode": 3, "reason": "Error"})),
            F,
            "exit code 3",
            3,
        ),
        (
            pod("Failed", **container(terminated={"exitCode": 137, "reason": "OOMKilled"})),
            F,
            "OOMKilled: exit code 137 (SIGKILL)",
            137,
        ),
        (
            pod(
                "Failed",
                **container(
                    terminated={"exitCode": 128, "reason": "StartError", "message": "no such file"}
                ),
            ),
            F,
            "StartError: exit code 128: no such file",
            128,
        ),
        (
            pod("Failed", reason="Evicted", message="low on memory"),
            F,
            "Evicted: low on memory",
            None,
        ),
        (
            pod("Failed", reason="DeadlineExceeded", message="Pod was active too long"),
            F,
            "time limit reached (option time)",
            None,
        ),
        (
            pod("Failed", reason="Evicted", conditions=[EVICTED]),
            F,
            "Evicted: low on memory",
            None,
        ),
        (
            pod("Failed", conditions=[PREEMPTED], **container(terminated={"exitCode": 143})),
            F,
            "Preempted: preempting for another",
            143,
        ),
        (
            # a sidecar still runs
            pod("Running", **container(terminated={"exitCode": 2, "reason": "Error"})),
            F,
            "exit code 2",
            2,
        ),
        (pod("Unknown"), AppState.UNKNOWN, "", None),
        ({"metadata": {"name": "x"}}, AppState.UNKNOWN, "", None),
    ],
)
def test_states_and_reasons_of_pods(
    found: dict[str, Any], state: AppState, reason: str, code: int | None
) -> None:
    read = read_pod(found)
    assert (read.state, read.reason, read.exit_code) == (state, reason, code)


def test_a_restarted_container_shows_its_last_failure() -> None:
    found = pod("Running", **container(running={}))
    found["spec"]["restartPolicy"] = "OnFailure"
    found["status"]["containerStatuses"][0].update(
        restartCount=2, lastState={"terminated": {"exitCode": 1, "reason": "Error"}}
    )
    read = read_pod(found)
    assert (read.state, read.restarts) == (R, 2)
    assert read.reason == "restarted after exit code 1"


@pytest.mark.parametrize(
    ("labels", "annotations", "index"),
    [
        ({"batch.kubernetes.io/job-completion-index": "7"}, {}, 7),
        ({}, {"batch.kubernetes.io/job-completion-index": "8"}, 8),
        ({"torchx.pytorch.org/replica-id": "9"}, {"volcano.sh/task-index": "0"}, 9),
        ({"volcano.sh/task-index": "5"}, {}, 5),
    ],
)
def test_the_index_of_a_pod(
    labels: dict[str, str], annotations: dict[str, str], index: int
) -> None:
    metadata = {"name": "a", "labels": labels, "annotations": annotations}
    assert read_pod({"metadata": metadata}).id == index


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, "proxy"),
        ({"kubectl.kubernetes.io/default-container": "main"}, "main"),
        ({"kubectl.kubernetes.io/default-container": "deleted"}, "proxy"),
        (
            {
                "kubectl.kubernetes.io/default-container": "proxy",
                "torchx.pytorch.org/container": "main",
            },
            "main",
        ),
    ],
)
def test_the_container_of_a_role_is_found_by_name(
    annotations: dict[str, str], expected: str
) -> None:
    found = pod(
        "Failed",
        containerStatuses=[
            {"name": "proxy", "state": {"terminated": {"exitCode": 0}}},
            {"name": "main", "state": {"terminated": {"exitCode": 3}}},
        ],
    )
    found["metadata"]["annotations"] = annotations
    found["spec"]["containers"].insert(0, {"name": "proxy"})
    assert read_pod(found).container == expected
    assert read_pod(found).exit_code == {"main": 3, "proxy": 0}[expected]


def test_attempts_are_sorted() -> None:
    first, second = pod("Failed"), pod("Running", **container(running={}))
    second["metadata"]["name"] = "a-main-3-aaaaa"  # created in the same second
    assert [p.state for p in latest(map(read_pod, [second, first]))] == [F, R]


def job(*true: str, role: str = "main", **words: Any) -> dict[str, Any]:
    conditions = [{"type": t, "status": "True", "reason": "Because", "message": "so"} for t in true]
    return {
        "metadata": {
            "name": f"a-{role}",
            "labels": words.pop("labels", {}),
            "annotations": {"torchx.pytorch.org/role-name": role, **words.pop("notes", {})},
        },
        "spec": {"completions": 1, "template": {}, **words.pop("spec", {})},
        "status": {"conditions": conditions, **words},
    }


CANCELLED = {"torchx.pytorch.org/cancelled": "yesterday"}


@pytest.mark.parametrize(
    ("jobs", "state", "message"),
    [
        ([job()], AppState.SUBMITTED, ""),
        ([job(active=1)], P, ""),
        ([job(active=1, ready=1)], R, ""),
        # the last pod has ended, but the controller has not counted it yet
        ([job(startTime="t", uncountedTerminatedPods={"succeeded": ["uid"]})], R, ""),
        ([job(startTime="t", uncountedTerminatedPods={})], P, ""),
        ([job("Complete")], S, ""),
        ([job("Failed")], F, "Because: so"),
        ([job("FailureTarget")], R, ""),
        ([job("Suspended", spec={"suspend": True})], P, "suspended"),
        (
            [job(spec={"suspend": True}, labels={"kueue.x-k8s.io/queue-name": "q"})],
            P,
            "waiting in Kueue's queue q",
        ),
        (
            [job(spec={"suspend": True}, notes=CANCELLED)],
            AppState.CANCELLED,
            "cancelled yesterday",
        ),
        ([job("Complete", notes=CANCELLED)], S, ""),
        ([job("Complete", role="x"), job("Failed", role="y")], F, "y: Because: so"),
        (
            [job(ready=1, role="x"), job("Failed", role="y")],
            F,
            "y: Because: so; other roles still run, delete the app to end them",
        ),
        ([job("Complete", role="x"), job(active=1, role="y")], P, ""),
    ],
)
def test_states_and_messages_of_jobs(
    jobs: list[dict[str, Any]], state: AppState, message: str
) -> None:
    view = BATCH.view("a", jobs)
    assert (view.state, view.message) == (state, message)


def test_the_state_of_an_app_follows_from_its_roles() -> None:
    assert combined([S, S]) == S
    assert combined([S, P]) == P
    assert combined([S, P, R]) == R
    assert combined([R, F]) == F
    assert combined([F, AppState.CANCELLED]) == AppState.CANCELLED


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, AppState.SUBMITTED),
        ({"replicatedJobsStatus": [{"name": "a", "ready": 0}]}, P),
        ({"replicatedJobsStatus": [{"name": "a", "ready": 1}], "restarts": 2}, R),
        ({"terminalState": "Completed"}, S),
        ({"conditions": [{"type": "Failed", "status": "True", "reason": "R"}]}, F),
    ],
)
def test_states_of_jobsets(status: dict[str, Any], state: AppState) -> None:
    template = {
        "metadata": {"annotations": {"torchx.pytorch.org/role-name": "My Role"}},
        "spec": {"completions": 3, "template": {}},
    }
    spec = {"replicatedJobs": [{"name": "my-role", "template": template}]}
    view = JOBSET.view("a", [{"metadata": {"name": "a"}, "spec": spec, "status": status}])
    assert view.state == state
    assert view.restarts == status.get("restarts", 0)
    assert [(r.name, r.replicas, r.owner) for r in view.roles] == [("My Role", 3, "a-my-role-0")]


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("", P),
        ("Running", R),
        ("Completed", S),
        ("Failed", F),
        ("Terminated", F),
        ("Aborted", AppState.CANCELLED),
        ("Invented", AppState.UNKNOWN),
    ],
)
def test_states_of_volcano_jobs(phase: str, state: AppState) -> None:
    def task(k: int) -> dict[str, Any]:
        labels = {
            "torchx.pytorch.org/app-name": "app",
            "torchx.pytorch.org/role-name": "trainer",
            "torchx.pytorch.org/role-index": "0",
            "torchx.pytorch.org/replica-id": str(k),
        }
        return {"name": f"trainer-{k}", "replicas": 1, "template": {"metadata": {"labels": labels}}}

    found = {
        "metadata": {"name": "a"},
        "spec": {"tasks": [task(0), task(1)]},
        "status": {"state": {"phase": phase}} if phase else {},
    }
    assert is_ours(found)
    assert not is_ours({"metadata": {}, "spec": {"tasks": [{"template": {}}]}})
    view = VOLCANO.view("a", [found])
    assert view.state == state
    assert [(role.name, role.replicas) for role in view.roles] == [("trainer", 2)]


def test_a_role_is_described_from_its_template() -> None:
    given = Role(
        "main",
        "busybox",
        entrypoint="sh",
        args=["-c", "echo $(X) $$"],
        env={"A": "$(B)"},
        num_replicas=2,
        resource=Resource(cpu=2, gpu=1, memMB=500, devices={"vpc.amazonaws.com/efa": 1}),
        port_map={"http": 80},
    )
    place = Place("a", "ns", {"torchx.pytorch.org/role-name": "main"}, {}, "", replica=0)
    template = make_pod(given, "main", place, KubernetesOpts())
    found = described_role(RoleView(0, "main", 2, template))
    given.env["TORCHX_IMAGE"] = "busybox"
    assert found == given


def test_a_described_role_has_its_mounts() -> None:
    mounts = [
        BindMount("/data", "/mnt/data", read_only=True),
        VolumeMount("claim", "/mnt/claim"),
        DeviceMount("/dev/fuse", "/dev/fuse", "rwm"),
    ]
    role = Role("main", "i", entrypoint="true", mounts=list(mounts))
    opts = KubernetesOpts(volumes=["emptyDir:/scratch", "secret/keys:/keys"])
    place = Place("app-1", "default", {}, {}, "", replica=0)
    template = make_pod(role, "main", place, opts)
    assert described_role(RoleView(0, "main", 1, template)).mounts == mounts


MINUTE = "2026-01-02T03:{:02}:00Z"


def minutes(*times: datetime | None) -> list[int | None]:
    return [None if when is None else when.minute for when in times]


def test_times_of_a_pod() -> None:
    ended = {"exitCode": 1, "startedAt": MINUTE.format(1), "finishedAt": MINUTE.format(2)}
    running = {"running": {"startedAt": MINUTE.format(4)}}
    found = [
        read_pod(pod("Failed", **container(terminated=ended))),
        read_pod(pod("Running", **container(**running))),
        read_pod(pod("Pending")),
    ]
    times = [minutes(one.started, one.ended) for one in found]
    assert times == [[1, 2], [4, None], [None, None]]


def test_an_app_of_jobs_starts_with_its_first_job_and_ends_with_its_last() -> None:
    first = job("Complete", role="one", startTime=MINUTE.format(3), completionTime=MINUTE.format(9))
    second = job("Failed", role="two", startTime=MINUTE.format(2))
    second["status"]["conditions"][0]["lastTransitionTime"] = MINUTE.format(8)
    first["metadata"]["creationTimestamp"] = MINUTE.format(1)
    view = BATCH.view("app", [first, second])
    assert minutes(creation(view.objects), view.started, view.ended) == [1, 2, 9]


def test_a_cancelled_app_ends_when_it_is_cancelled() -> None:
    cancelled = job(startTime=MINUTE.format(2))
    cancelled["metadata"].setdefault("annotations", {})[ANNOTATION_CANCELLED] = MINUTE.format(5)
    assert minutes(BATCH.view("app", [cancelled]).ended) == [5]


def test_a_volcano_job_has_the_times_of_its_phases() -> None:
    phases = ["Pending", "Running", "Restarting", "Pending", "Running", "Completed"]
    conditions = [
        {"status": phase, "lastTransitionTime": MINUTE.format(k)} for k, phase in enumerate(phases)
    ]
    status = {"state": {"phase": "Completed"}, "conditions": conditions}
    view = VOLCANO.view("app", [{"metadata": {}, "spec": {}, "status": status}])
    assert minutes(view.started, view.ended) == [4, 5]
