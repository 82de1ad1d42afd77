"""What Batch says of jobs, in our words."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.batch.describe import describe, job_ui_url, roles_of
from torchx_sched_aws.batch.scheduler import (
    AWSBatchScheduler,
    _job_ui_url,
    _parse_num_replicas,
    _parse_start_and_end_idx,
)
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
