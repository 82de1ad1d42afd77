"""What Batch says of jobs, in our words."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.batch.describe import describe, job_ui_url, roles_of
from torchx_sched_aws.batch.jobs import Jobs
from torchx_sched_aws.batch.scheduler import (
    JOB_STATE,
    AWSBatchScheduler,
    _job_ui_url,
    _parse_num_replicas,
    _parse_start_and_end_idx,
)
from torchx_sched_aws.batch.states import exit_code, job_state, reason_of, restarts
from torchx_sched_aws.client import Clients
from torchx_specs import (
    AppDef,
    AppState,
    BindMount,
    DeviceMount,
    Resource,
    Role,
    VolumeMount,
    macros,
)

ARN = "arn:aws:batch:us-east-1:123456789012:job/id"


def attempt(code: int | None = None, reason: str = "", stopped: int | None = 1) -> dict[str, Any]:
    container: dict[str, Any] = {"logStreamName": "stream"}
    if code is not None:
        container["exitCode"] = code
    if reason:
        container["reason"] = reason
    found: dict[str, Any] = {"container": container}
    if stopped is not None:
        found["stoppedAt"] = stopped
    return found


@pytest.mark.parametrize(("status", "state"), JOB_STATE.items())
def test_states(status: str, state: AppState) -> None:
    assert job_state({"status": status}) == state


@pytest.mark.parametrize(
    "fields",
    [
        {"isTerminated": True},
        {"isCancelled": True},
        {"statusReason": "cancelled by TorchX"},
        {"statusReason": "killed via torchx CLI"},
    ],
)
def test_cancelled_is_not_failed(fields: dict[str, Any]) -> None:
    assert job_state({"status": "FAILED", **fields}) == AppState.CANCELLED
    assert job_state({"status": "SUCCEEDED", **fields}) == AppState.SUCCEEDED
    assert job_state({"status": "NEW"}) == AppState.UNKNOWN


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        ({"status": "RUNNABLE"}, "waits for a machine"),
        (
            {"status": "RUNNABLE", "statusReason": "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - x"},
            "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - x",
        ),
        ({"status": "RUNNING"}, ""),
        ({"status": "SUCCEEDED", "statusReason": "Essential container in task exited"}, ""),
        (
            {
                "status": "FAILED",
                "statusReason": "Essential container in task exited",
                "container": {"exitCode": 3},
            },
            "Essential container in task exited; exit code 3",
        ),
        (
            {
                "status": "FAILED",
                "statusReason": "Task exited",
                "container": {"exitCode": 137, "reason": "OutOfMemoryError:\n killed"},
                "attempts": [attempt(137, "OutOfMemoryError:\n killed")],
            },
            "Task exited; OutOfMemoryError: killed; killed by signal 9 (SIGKILL)",
        ),
        (
            {
                "status": "FAILED",
                "statusReason": "Task failed to start",
                "attempts": [attempt(1), attempt(None, "CannotPullContainerError: no such image")],
            },
            "Task failed to start; CannotPullContainerError: no such image",
        ),
    ],
)
def test_reasons(job: dict[str, Any], reason: str) -> None:
    assert reason_of(job) == reason


def test_exit_codes_and_restarts() -> None:
    assert exit_code({"container": {"exitCode": 0}}) == 0
    assert exit_code({"container": {"exitCode": 143}}) == -15
    assert exit_code({"attempts": [attempt(1), attempt(2)]}) == 2
    assert exit_code({}) is None
    attempts = [attempt(1), attempt(1)]
    assert restarts({"status": "FAILED", "attempts": attempts}) == 1
    assert restarts({"status": "RUNNING", "attempts": attempts}) == 2
    assert restarts({"status": "RUNNING", "attempts": [attempt(stopped=None)]}) == 0
    assert restarts({"status": "RUNNABLE"}) == 0


def several(status: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    """A job of two roles, 1 and 2 replicas."""

    def group(target: str, name: str) -> dict[str, Any]:
        variable = {"name": "TORCHX_ROLE_NAME", "value": name}
        return {"targetNodes": target, "container": {"environment": [variable], "command": ["x"]}}

    return {
        "jobId": "id",
        "jobArn": ARN,
        "status": status,
        "nodeProperties": {
            "numNodes": 3,
            "nodeRangeProperties": [group("0", "head"), group("1:", "worker")],
        },
        **fields,
    }


def node(status: str, code: int | None = None, **fields: Any) -> dict[str, Any]:
    container: dict[str, Any] = {
        "networkInterfaces": [{"privateIpv4Address": "10.0.0.7"}],
        "containerInstanceArn": "arn:aws:ecs:us-east-1:1:container-instance/cluster/machine",
    }
    if code is not None:
        container["exitCode"] = code
    return {"status": status, "container": container, **fields}


def test_nodes_are_replicas() -> None:
    nodes = {0: node("RUNNING"), 1: node("SUCCEEDED", 0)}
    found = describe("q:n", several(), nodes)
    assert [(s.role, [r.id for r in s.replicas]) for s in found.roles_statuses] == [
        ("head", [0]),
        ("worker", [0, 1]),
    ]
    states = [r.state for s in found.roles_statuses for r in s.replicas]
    assert states == [AppState.RUNNING, AppState.SUCCEEDED, AppState.PENDING]
    first = found.roles_statuses[0].replicas[0]
    assert (first.hostname, first.node) == ("10.0.0.7", "machine")
    assert found.ui_url is not None
    assert found.ui_url.endswith("#jobs/mnp-job/id")


def test_a_replica_that_failed_by_itself_fails_the_app() -> None:
    nodes = {0: node("SUCCEEDED", 0), 1: node("SUCCEEDED", 0), 2: node("FAILED", 4)}
    found = describe("q:n", several("SUCCEEDED"), nodes)
    assert found.state == AppState.FAILED
    assert found.msg == "worker/1: exit code 4"
    assert found.roles_statuses[1].replicas[1].exit_code == 4


@pytest.mark.parametrize("code", [137, 143, None])
def test_replicas_that_batch_has_stopped_do_not(code: int | None) -> None:
    nodes = {0: node("SUCCEEDED", 0), 1: node("FAILED", code), 2: node("SUCCEEDED", 0)}
    found = describe("q:n", several("SUCCEEDED"), nodes)
    assert found.state == AppState.SUCCEEDED
    states = [r.state for s in found.roles_statuses for r in s.replicas]
    assert states == [AppState.SUCCEEDED, AppState.CANCELLED, AppState.SUCCEEDED]


def test_a_cancelled_app_has_no_failed_replicas() -> None:
    nodes = {0: node("FAILED", 143), 1: node("FAILED", 1), 2: node("SUCCEEDED", 0)}
    found = describe("q:n", several("FAILED", isTerminated=True), nodes)
    assert found.state == AppState.CANCELLED
    states = [r.state for s in found.roles_statuses for r in s.replicas]
    assert states == [AppState.CANCELLED, AppState.CANCELLED, AppState.SUCCEEDED]


def test_roles_are_what_was_submitted() -> None:
    resource = Resource(cpu=2, gpu=1, memMB=64, devices={"vpc.amazonaws.com/efa": 1})
    mounts = [
        BindMount("/a", "/b", True),
        VolumeMount("fs-1:/x", "/c"),
        VolumeMount("fs-1:fsap-2", "/d"),
        DeviceMount("/dev/x", "/dev/y", "rw"),
    ]
    roles = [
        Role(
            "one",
            "image",
            entrypoint="sh",
            args=["-c", macros.replica_id],
            env={"E": "", "A": "b"},
            num_replicas=2,
            max_retries=1,
            resource=resource,
            mounts=mounts,
        ),
        Role("two", "other", entrypoint="x", resource=resource),
    ]
    scheduler = AWSBatchScheduler("test")
    definition = scheduler.submit_dryrun(AppDef("app", roles), {"queue": "q"}).request.job_def
    one, two = roles_of(definition)
    assert (one.name, one.image, one.num_replicas, one.max_retries) == ("one", "image", 2, 1)
    assert (one.entrypoint, one.args) == ("sh", ["-c", macros.replica_id])
    assert one.env == {"E": "", "A": "b", "TORCHX_ROLE_IDX": "0", "TORCHX_ROLE_NAME": "one"}
    assert one.mounts[:4] == mounts
    assert one.resource == Resource(cpu=2, gpu=1, memMB=64)
    assert (two.name, two.num_replicas) == ("two", 1)


def test_jobs_of_others_have_a_role_too() -> None:
    (role,) = roles_of({"container": {"image": "x", "command": []}})
    assert (role.name, role.image, role.num_replicas) == ("node", "x", 1)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("3", (3, 3)), ("0:2", (0, 2)), (":2", (0, 2)), ("2:", (2, 7)), (":", (0, 7))],
)
def test_node_ranges(target: str, expected: tuple[int, int]) -> None:
    assert _parse_start_and_end_idx(target, 8) == expected
    assert _parse_num_replicas(target, 8) == expected[1] - expected[0] + 1


def test_where_to_look_at_a_job() -> None:
    url = "https://us-east-1.console.aws.amazon.com/batch/home?region=us-east-1#jobs"
    assert _job_ui_url(ARN) == f"{url}/mnp-job/id"
    assert job_ui_url(ARN, several_nodes=False) == f"{url}/detail/id"
    assert _job_ui_url("x") is None


def test_a_hundred_nodes_in_one_request() -> None:
    asked: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            asked.append(jobs)
            return {"jobs": [{"jobId": job, "status": "RUNNING"} for job in jobs]}

    jobs = Jobs(Clients({"batch": BatchDouble()}))
    properties = {"numNodes": 250, "nodeRangeProperties": []}
    found = jobs.nodes({"jobId": "id", "status": "RUNNING", "nodeProperties": properties})
    assert [len(ids) for ids in asked] == [100, 100, 50]
    assert sorted(found) == list(range(250))
    assert jobs.nodes({"jobId": "id", "status": "RUNNABLE", "nodeProperties": properties}) == {}


def test_one_answer_tells_all_who_follow_nodes_of_a_job() -> None:
    asked: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            asked.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs if job != "id#2"]}

    jobs = Jobs(Clients({"batch": BatchDouble()}))
    one, other = {"jobId": "id#0"}, {"jobId": "id#1"}
    assert jobs.look("id", "id#0", old=60) == ({"jobId": "id"}, one)
    assert jobs.look("id", "id#1", old=60) == ({"jobId": "id"}, other)
    assert jobs.look("id", "id#2", old=60) == ({"jobId": "id"}, None)
    for node, said in (("id#0", one), ("id#1", other), ("id#2", None)):
        assert jobs.look("id", node, old=60) == ({"jobId": "id"}, said)
    assert asked == [["id", "id#0"], ["id", "id#0", "id#1"], ["id", "id#0", "id#1", "id#2"]]
    jobs.look("id", "id#1")
    jobs.look("single", "single")
    assert asked[3:] == [["id", "id#0", "id#1", "id#2"], ["single"]]


def test_a_node_that_nobody_follows_any_longer_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            asked.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs]}

    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    jobs = Jobs(Clients({"batch": BatchDouble()}))
    jobs.look("id", "id#0")
    now[0] += 14
    jobs.look("id", "id#1")
    now[0] += 2
    jobs.look("id", "id#1")
    assert asked == [["id", "id#0"], ["id", "id#0", "id#1"], ["id", "id#1"]]
