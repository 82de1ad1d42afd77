"""Description of Batch jobs as apps."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.batch.describe import (
    _parse_num_replicas,
    _parse_start_and_end_idx,
    describe,
    job_ui_url,
    read_roles,
)
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
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


def multi_node_job(status: str = "RUNNING", **fields: Any) -> dict[str, Any]:
    """Return a job of two roles with one and two replicas."""

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


def test_each_node_is_a_replica() -> None:
    nodes = {0: node("RUNNING"), 1: node("SUCCEEDED", 0)}
    found = describe("q:n", multi_node_job(), nodes)
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


def test_app_fails_if_any_replica_fails_by_itself() -> None:
    nodes = {0: node("SUCCEEDED", 0), 1: node("SUCCEEDED", 0), 2: node("FAILED", 4)}
    found = describe("q:n", multi_node_job("SUCCEEDED"), nodes)
    assert found.state == AppState.FAILED
    assert found.msg == "worker/1: exit code 4"
    assert found.roles_statuses[1].replicas[1].exit_code == 4


@pytest.mark.parametrize("code", [137, 143, None])
def test_app_succeeds_if_batch_stopped_other_replicas(code: int | None) -> None:
    nodes = {0: node("SUCCEEDED", 0), 1: node("FAILED", code), 2: node("SUCCEEDED", 0)}
    found = describe("q:n", multi_node_job("SUCCEEDED"), nodes)
    assert found.state == AppState.SUCCEEDED
    states = [r.state for s in found.roles_statuses for r in s.replicas]
    assert states == [AppState.SUCCEEDED, AppState.CANCELLED, AppState.SUCCEEDED]


def test_cancelled_app_has_no_failed_replicas() -> None:
    nodes = {0: node("FAILED", 143), 1: node("FAILED", 1), 2: node("SUCCEEDED", 0)}
    found = describe("q:n", multi_node_job("FAILED", isTerminated=True), nodes)
    assert found.state == AppState.CANCELLED
    states = [r.state for s in found.roles_statuses for r in s.replicas]
    assert states == [AppState.CANCELLED, AppState.CANCELLED, AppState.SUCCEEDED]


def test_read_roles_returns_the_submitted_roles() -> None:
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
    one, two = read_roles(definition)
    assert (one.name, one.image, one.num_replicas, one.max_retries) == ("one", "image", 2, 1)
    assert (one.entrypoint, one.args) == ("sh", ["-c", macros.replica_id])
    assert one.env == {
        "E": "",
        "A": "b",
        "TORCHX_REPLICA_ID": macros.replica_id,
        "TORCHX_ROLE_IDX": "0",
        "TORCHX_ROLE_NAME": "one",
    }
    assert one.mounts[:4] == mounts
    assert one.resource == Resource(cpu=2, gpu=1, memMB=64)
    assert (two.name, two.num_replicas) == ("two", 1)


def test_read_roles_accepts_jobs_of_other_tools() -> None:
    (role,) = read_roles({"container": {"image": "x", "command": []}})
    assert (role.name, role.image, role.num_replicas) == ("node", "x", 1)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("3", (3, 3)), ("0:2", (0, 2)), (":2", (0, 2)), ("2:", (2, 7)), (":", (0, 7))],
)
def test_node_ranges_are_parsed(target: str, expected: tuple[int, int]) -> None:
    assert _parse_start_and_end_idx(target, 8) == expected
    assert _parse_num_replicas(target, 8) == expected[1] - expected[0] + 1


def test_job_ui_url() -> None:
    url = "https://us-east-1.console.aws.amazon.com/batch/home?region=us-east-1#jobs"
    assert job_ui_url(ARN) == f"{url}/mnp-job/id"
    assert job_ui_url(ARN, several_nodes=False) == f"{url}/detail/id"
    assert job_ui_url("x") is None


@pytest.mark.parametrize(
    ("partition", "region", "domain"),
    [
        ("aws-cn", "cn-north-1", "console.amazonaws.cn"),
        ("aws-us-gov", "us-gov-west-1", "console.amazonaws-us-gov.com"),
    ],
)
def test_job_ui_url_depends_on_the_partition(partition: str, region: str, domain: str) -> None:
    found = job_ui_url(f"arn:{partition}:batch:{region}:123456789012:job/id")
    assert found == f"https://{domain}/batch/home?region={region}#jobs/mnp-job/id"
