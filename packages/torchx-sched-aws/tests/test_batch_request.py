"""Requests of aws_batch, checked against botocore's model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from torchx_sched_aws.batch.request import MAX_DEFINITION_BYTES, MAX_OVERRIDE_BYTES, BatchJob
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler, create_scheduler
from torchx_sched_aws.batch.submit import definition_digest
from torchx_specs import (
    AppDef,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    Role,
    VolumeMount,
    macros,
)
from torchx_specs.errors import RequestError
from torchx_specs.overlays import set_overlay

Request = Callable[..., BatchJob]
RESOURCE = Resource(cpu=2, gpu=0, memMB=512)


@pytest.fixture
def scheduler() -> AWSBatchScheduler:
    return create_scheduler("test", unknown="ignored")


@pytest.fixture
def request_of(
    scheduler: AWSBatchScheduler, validate: Callable[[str, str, Mapping[str, Any]], None]
) -> Request:
    """Return a function that makes the request for some roles and checks it against the model."""

    def make(*roles: Role, app: AppDef | None = None, **cfg: Any) -> BatchJob:
        app = app or AppDef("app", list(roles))
        job: BatchJob = scheduler.submit_dryrun(app, {"queue": "queue", **cfg}).request
        validate("batch", "RegisterJobDefinition", job.job_def)
        validate("batch", "SubmitJob", job.submit_parameters("definition"))
        return job

    return make


def role(**fields: Any) -> Role:
    given = {"name": "main", "image": "busybox:1", "entrypoint": "sh", "resource": RESOURCE}
    return Role(**{**given, **fields})


def test_one_replica_keeps_its_instance_type(request_of: Request) -> None:
    resource = Resource(
        cpu=4,
        gpu=2,
        memMB=2048,
        capabilities={"node.kubernetes.io/instance-type": "p4d.24xlarge"},
    )
    job = request_of(role(resource=resource, env={"TORCHX_X": "1"}))
    assert job.job_def["type"] == "multinode"
    nodes = job.job_def["nodeProperties"]
    assert (nodes["numNodes"], nodes["mainNode"]) == (1, 0)
    (group,) = nodes["nodeRangeProperties"]
    assert group["targetNodes"] == "0:0"
    assert group["container"]["instanceType"] == "p4d.24xlarge"
    (override,) = job.submission["nodeOverrides"]["nodePropertyOverrides"]
    assert override["targetNodes"] == "0:0"


def test_single_node_request_has_every_field(request_of: Request) -> None:
    resource = Resource(
        cpu=4,
        gpu=2,
        memMB=2048,
        devices={"vpc.amazonaws.com/efa": 1, "aws.amazon.com/neurondevice": 1},
    )
    mounts = [
        BindMount("/data", "/in", True),
        VolumeMount("fs-12345678", "/efs"),
        VolumeMount("fs-12345678:/below", "/efs-below"),
        VolumeMount("fs-12345678:fsap-0a", "/efs-point"),
        DeviceMount("/dev/x", "/dev/y", "rw"),
    ]
    job = request_of(
        role(
            args=["-c", f"echo {macros.replica_id} $$HOME"],
            env={"A": "b"},
            resource=resource,
            mounts=mounts,
            max_retries=2,
        ),
        user="me",
        share_id="team",
        priority=7,
        job_role_arn="arn:aws:iam::123456789012:role/job",
        execution_role_arn="arn:aws:iam::123456789012:role/execution",
        time="1h",
        shm_mb=1024,
        ulimits=["memlock:-1", "nofile=1024:4096"],
        secrets={"KEY": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-a1"},
        log_group="/my/group",
        propagate_tags=True,
        depends_on=["other"],
    )
    assert job.app_id == f"queue:{job.name}"
    assert job.name.startswith("app-team-")
    assert job.job_def == {
        "jobDefinitionName": "torchx-app",
        "type": "container",
        "containerProperties": {
            "command": ["sh", "-c", "echo 0 $HOME"],
            "image": "busybox:1",
            "environment": [
                {"name": "A", "value": "b"},
                {"name": "TORCHX_REPLICA_ID", "value": "0"},
                {"name": "TORCHX_ROLE_IDX", "value": "0"},
                {"name": "TORCHX_ROLE_NAME", "value": "main"},
            ],
            "privileged": False,
            "resourceRequirements": [
                {"type": "VCPU", "value": "4"},
                {"type": "MEMORY", "value": "2048"},
                {"type": "GPU", "value": "2"},
            ],
            "linuxParameters": {
                "sharedMemorySize": 1024,
                "devices": [
                    {
                        "hostPath": "/dev/x",
                        "containerPath": "/dev/y",
                        "permissions": ["READ", "WRITE"],
                    },
                    {
                        "hostPath": "/dev/infiniband/uverbs0",
                        "containerPath": "/dev/infiniband/uverbs0",
                        "permissions": ["READ", "WRITE", "MKNOD"],
                    },
                    {
                        "hostPath": "/dev/neuron0",
                        "containerPath": "/dev/neuron0",
                        "permissions": ["READ", "WRITE", "MKNOD"],
                    },
                ],
            },
            "mountPoints": [
                {"sourceVolume": "mount_0", "containerPath": "/in", "readOnly": True},
                {"sourceVolume": "mount_1", "containerPath": "/efs", "readOnly": False},
                {"sourceVolume": "mount_2", "containerPath": "/efs-below", "readOnly": False},
                {"sourceVolume": "mount_3", "containerPath": "/efs-point", "readOnly": False},
            ],
            "volumes": [
                {"name": "mount_0", "host": {"sourcePath": "/data"}},
                {"name": "mount_1", "efsVolumeConfiguration": {"fileSystemId": "fs-12345678"}},
                {
                    "name": "mount_2",
                    "efsVolumeConfiguration": {
                        "fileSystemId": "fs-12345678",
                        "rootDirectory": "/below",
                    },
                },
                {
                    "name": "mount_3",
                    "efsVolumeConfiguration": {
                        "fileSystemId": "fs-12345678",
                        "transitEncryption": "ENABLED",
                        "authorizationConfig": {"accessPointId": "fsap-0a"},
                    },
                },
            ],
            "logConfiguration": {
                "logDriver": "awslogs",
                "options": {"awslogs-group": "/my/group"},
            },
            "jobRoleArn": "arn:aws:iam::123456789012:role/job",
            "executionRoleArn": "arn:aws:iam::123456789012:role/execution",
            "ulimits": [
                {"name": "memlock", "softLimit": -1, "hardLimit": -1},
                {"name": "nofile", "softLimit": 1024, "hardLimit": 4096},
            ],
            "secrets": [
                {
                    "name": "KEY",
                    "valueFrom": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-a1",
                }
            ],
        },
        "retryStrategy": {
            "attempts": 3,
            "evaluateOnExit": [
                {"onExitCode": "0", "action": "EXIT"},
            ],
        },
        "schedulingPriority": 7,
        "timeout": {"attemptDurationSeconds": 3600},
        "propagateTags": True,
        "tags": job.job_def["tags"],
    }
    assert job.job_def["tags"]["torchx.pytorch.org/user"] == "me"
    fields = job.submit_parameters("definition")
    assert fields["shareIdentifier"] == "team"
    assert fields["dependsOn"] == [{"jobId": "other"}]
    assert fields["tags"] == job.job_def["tags"]
    assert "containerOverrides" not in fields


def test_each_role_is_a_node_range(request_of: Request) -> None:
    resource = Resource.copy(RESOURCE, **{"node.kubernetes.io/instance-type": "p5.48xlarge"})
    job = request_of(
        role(name="head", args=[macros.replica_id]),
        role(name="worker", args=[macros.replica_id, "x"], num_replicas=3, resource=resource),
        role(name="plain", num_replicas=2, args=["a b", "$X"]),
    )
    properties = job.job_def["nodeProperties"]
    assert job.job_def["type"] == "multinode"
    assert (properties["numNodes"], properties["mainNode"]) == (6, 0)
    ranges = properties["nodeRangeProperties"]
    assert [one["targetNodes"] for one in ranges] == ["0:0", "1:3", "4:5"]
    head, worker, plain = (one["container"] for one in ranges)
    assert head["command"] == ["sh", "0"]
    assert worker["command"][:2] == ["sh", "-c"]
    script = (
        "__torchx_k=$((AWS_BATCH_JOB_NODE_INDEX-1));"
        'exec env TORCHX_REPLICA_ID="$__torchx_k" sh "$__torchx_k" x'
    )
    assert worker["command"][2:] == [script, "torchx"]
    assert plain["command"][2].endswith("""sh 'a b' '$X'""")
    assert worker["instanceType"] == "p5.48xlarge"
    assert "instanceType" not in plain
    assert [e for e in worker["environment"] if e["name"] == "TORCHX_ROLE_IDX"] == [
        {"name": "TORCHX_ROLE_IDX", "value": "1"}
    ]


def test_values_that_change_with_each_run_are_overrides(request_of: Request) -> None:
    def make(session: str) -> BatchJob:
        env = {"TORCHX_JOB_ID": f"x/{macros.app_id}", "TORCHX_SESSION": session, "A": "b"}
        roles = [
            role(name="one", args=["-c", macros.app_id], env=env),
            role(name="two", env={"NAME": macros.app_id}),
            role(name="three"),
        ]
        return request_of(*roles)

    first, second = make("1"), make("2")
    assert first.name != second.name
    assert definition_digest(first.job_def) == definition_digest(second.job_def)
    overrides = first.submission["nodeOverrides"]["nodePropertyOverrides"]
    assert overrides == [
        {
            "targetNodes": "0:0",
            "containerOverrides": {
                "environment": [
                    {"name": "TORCHX_JOB_ID", "value": f"x/{first.name}"},
                    {"name": "TORCHX_SESSION", "value": "1"},
                ],
                "command": ["sh", "-c", first.name],
            },
        },
        {
            "targetNodes": "1:1",
            "containerOverrides": {"environment": [{"name": "NAME", "value": first.name}]},
        },
    ]
    other = request_of(role(name="one"))
    assert definition_digest(other.job_def) != definition_digest(first.job_def)


def test_too_large_overrides_move_into_the_definition(request_of: Request) -> None:
    text = macros.app_id + "x" * MAX_OVERRIDE_BYTES
    job = request_of(role(args=[text], env={"TORCHX_A": "b"}))
    assert "containerOverrides" not in job.submission
    container = job.job_def["containerProperties"]
    assert container["command"][1].startswith(f"{job.name}xxx")
    assert {"name": "TORCHX_A", "value": "b"} in container["environment"]


def test_command_sets_empty_variables(request_of: Request) -> None:
    container = request_of(role(env={"E": "", "A": "b"})).job_def["containerProperties"]
    assert container["command"] == ["env", "E=", "sh"]
    assert "E" not in [item["name"] for item in container["environment"]]


def test_retry_strategy_uses_the_largest_max_retries(request_of: Request) -> None:
    strategy = request_of(role()).job_def["retryStrategy"]
    assert strategy == {"attempts": 1, "evaluateOnExit": [{"onExitCode": "0", "action": "EXIT"}]}
    job = request_of(role(max_retries=1), role(name="b", max_retries=3))
    assert job.job_def["retryStrategy"]["attempts"] == 4


def test_replica_retry_policy_logs_a_warning(
    request_of: Request, caplog: pytest.LogCaptureFixture
) -> None:
    request_of(role(max_retries=1, num_replicas=2, retry_policy=RetryPolicy.REPLICA))
    assert "restarts all nodes" in caplog.text


def test_metadata_becomes_tags(request_of: Request) -> None:
    metadata: dict[str, Any] = {"team": "a,b", "n": 3, "long": "x" * 300, "nested": {"a": 1}}
    job = request_of(app=AppDef("my app", [role()], metadata))
    tags = job.submission["tags"]
    assert (tags["team"], tags["n"], len(tags["long"])) == ("a_b", "3", 256)
    assert "nested" not in tags
    assert tags["torchx.pytorch.org/app-name"] == "my app"
    assert set(job.job_def["tags"]) == {
        f"torchx.pytorch.org/{name}" for name in ("app-name", "user", "version")
    }


def test_overlays_change_container_definition_and_submission(request_of: Request) -> None:
    one = role()
    set_overlay(one, "aws_batch", "Container", {"linuxParameters": {"initProcessEnabled": True}})
    app = AppDef("app", [one])
    set_overlay(app, "aws_batch", "JobDefinition", {"platformCapabilities": ["EC2"]})
    set_overlay(app, "aws_batch", "SubmitJob", {"timeout": {"attemptDurationSeconds": 60}})
    job = request_of(app=app)
    linux = job.job_def["containerProperties"]["linuxParameters"]
    assert linux == {"sharedMemorySize": 512, "initProcessEnabled": True}
    assert job.job_def["platformCapabilities"] == ["EC2"]
    assert job.submit_parameters("d")["timeout"] == {"attemptDurationSeconds": 60}
    set_overlay(one, "aws_batch", "Container", {"image": "other"})
    with pytest.raises(RequestError, match=r"Container\.image"):
        request_of(app=app)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image": ""}, "no image"),
        ({"entrypoint": "<MISSING>"}, "no entrypoint"),
        ({"args": ["\0"]}, r"args\[0\] contains a NUL"),
        ({"args": ["\udcff"]}, r"args\[0\] contains bytes that are not UTF-8"),
        ({"env": {"": "x"}}, "not a valid variable name"),
        ({"env": {"AWS_BATCH_X": "x"}}, "reserves variables that begin with AWS_BATCH"),
        ({"env": {"A": "\udcff"}}, "not UTF-8"),
        ({"resource": Resource(cpu=1, gpu=0, memMB=-1)}, "has memMB=-1"),
        ({"resource": Resource(cpu=1, gpu=0, memMB=3)}, "Batch needs 4 or more"),
        ({"mounts": [VolumeMount("data", "/x")]}, "is not an EFS file system"),
        ({"mounts": [BindMount("a", "/x")]}, "'a' is not absolute"),
        ({"mounts": [DeviceMount("/dev/x", "/dev/x", "q")]}, "use one or more of r, w and m"),
        ({"mounts": ["x"]}, "is not a BindMount"),
        ({"max_retries": 10}, "retries at most 9 times"),
        ({"num_replicas": 0}, "num_replicas is 0"),
    ],
)
def test_invalid_role_is_an_error(
    request_of: Request, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        request_of(role(**fields))
    assert "'main'" in str(caught.value)


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"queue": "a b"}, "option queue"),
        ({"share_id": "a-b"}, "option share_id"),
        ({"priority": 10_000}, "option priority"),
        ({"job_role_arn": "role"}, "option job_role_arn: 'role' is not the ARN of a role"),
        ({"timeout": 10}, "option timeout"),
        ({"time": "10s"}, "option timeout=10 is not valid; it must be at least 60"),
        ({"time": "90"}, "option time: '90' is not a time limit"),
        ({"time": "2h", "timeout": 60}, "option time=2h contradicts timeout=60"),
        ({"shm_mb": 0}, "option shm_mb"),
        ({"ulimits": ["nofile"]}, "option ulimits: 'nofile' is not of the form"),
        ({"ulimits": ["nofiles:1"]}, "did you mean 'nofile'"),
        ({"secrets": {"A": "a b"}}, "secrets: .* is not of the form name:ARN"),
    ],
)
def test_invalid_option_is_an_error(request_of: Request, cfg: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        request_of(role(), **cfg)


def test_options_can_be_given_as_text(scheduler: AWSBatchScheduler, request_of: Request) -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-a1"
    text = f"ulimits=memlock:-1;nofile:1024:4096,secrets=KEY:{arn}"
    job = request_of(role(), **scheduler.run_opts().cfg_from_str(text))
    container = job.job_def["containerProperties"]
    assert [limit["name"] for limit in container["ulimits"]] == ["memlock", "nofile"]
    assert container["secrets"] == [{"name": "KEY", "valueFrom": arn}]


def test_all_problems_are_reported_together(request_of: Request) -> None:
    metadata = {f"key-{i}": "x" for i in range(48)} | {"aws:x": "y"}
    app = AppDef("app", [role(image=""), role(entrypoint="")], metadata)
    with pytest.raises(RequestError) as caught:
        request_of(app=app, priority=-1)
    problems = "\n".join(caught.value.problems)
    for part in (
        "no image",
        "no entrypoint",
        "2 roles are named",
        "priority",
        "aws:x",
        "47 besides",
    ):
        assert part in problems


def test_limits_of_a_job_are_checked(request_of: Request) -> None:
    with pytest.raises(RequestError, match=r"6 roles; .* 5 node groups"):
        request_of(*(role(name=str(i)) for i in range(6)))
    kinds = [Resource.copy(RESOURCE, **{"node.kubernetes.io/instance-type": kind}) for kind in "ab"]
    with pytest.raises(RequestError, match=r"different instance types \(a, b\)"):
        request_of(*(role(name=str(i), resource=kind) for i, kind in enumerate(kinds)))
    with pytest.raises(RequestError, match="has no roles"):
        request_of(app=AppDef("app", []))


def test_too_large_definition_is_an_error(request_of: Request) -> None:
    size = len(json.dumps(request_of(role(args=[""])).job_def))
    fits = "x" * (MAX_DEFINITION_BYTES - size)
    request_of(role(args=[fits]))
    with pytest.raises(RequestError, match=r"24577 bytes.* the command of role 'main'"):
        request_of(role(args=[fits + "x"]))
    with pytest.raises(RequestError, match="the variable BIG of role 'main'"):
        request_of(role(env={"BIG": fits}))


def test_queue_may_be_an_arn(request_of: Request) -> None:
    arn = "arn:aws:batch:us-east-1:123456789012:job-queue/gpu"
    job = request_of(role(), queue=arn)
    assert job.app_id == f"gpu:{job.name}"
    assert job.submit_parameters("d")["jobQueue"] == arn


def test_printed_request_is_yaml_without_secrets(scheduler: AWSBatchScheduler) -> None:
    env = {"API_TOKEN": "hunter2", "URL": "https://me:hunter2@host/", "SHOWN": "value"}
    for replicas in (1, 2):
        app = AppDef("app", [role(env=env, num_replicas=replicas)])
        info = scheduler.submit_dryrun(app, {"queue": "queue"})
        text = str(info)
        assert "hunter2" not in text
        printed = yaml.safe_load(text)
        assert printed["submit_job"]["jobName"] == info.request.name
        assert "value: value" in text
        assert "hunter2" in json.dumps(info.request.job_def)


def test_printed_request_shows_the_arns_of_secrets(
    scheduler: AWSBatchScheduler,
) -> None:
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-a1"
    info = scheduler.submit_dryrun(
        AppDef("app", [role()]), {"queue": "queue", "secrets": {"KEY": arn}}
    )
    container = yaml.safe_load(str(info))["job_def"]["containerProperties"]
    assert container["secrets"] == [{"name": "KEY", "valueFrom": arn}]


def test_dry_run_imports_neither_boto3_nor_yaml() -> None:
    code = (
        "import sys\n"
        "from torchx_sched_aws.batch.scheduler import create_scheduler\n"
        "import torchx_sched_aws.plugin\n"
        "from torchx_specs import AppDef, Resource, Role\n"
        "role = Role('r', 'i', entrypoint='e', resource=Resource(1, 0, 64))\n"
        "create_scheduler('s').submit_dryrun(AppDef('a', [role]), {'queue': 'q'})\n"
        "print([m for m in ('boto3', 'botocore', 'yaml', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
