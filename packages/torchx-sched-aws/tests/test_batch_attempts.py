"""Attempts of Batch jobs: the options, the request, the script and the description."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from torchx_sched_aws.batch.arrays import element_of
from torchx_sched_aws.batch.attempts import attempt_statuses
from torchx_sched_aws.batch.describe import describe
from torchx_sched_aws.batch.request import BatchJob
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler, create_scheduler
from torchx_specs import AppDef, AppState, BindMount, Resource, Role, VolumeMount
from torchx_specs.errors import RequestError

VOLUME = VolumeMount("fs-12345678", "/data")


@pytest.fixture
def scheduler() -> AWSBatchScheduler:
    return create_scheduler("test")


def role(name: str = "main", *mounts: Any, **fields: Any) -> Role:
    resource = Resource(cpu=1, gpu=0, memMB=64)
    return Role(name, "image", entrypoint="sh", resource=resource, mounts=[*mounts], **fields)


def request_of(scheduler: AWSBatchScheduler, *roles: Role, **cfg: Any) -> BatchJob:
    found: BatchJob = scheduler.submit_dryrun(
        AppDef("app", list(roles)), {"queue": "q", **cfg}
    ).request
    return found


@pytest.mark.parametrize(
    ("cfg", "mounts", "problem"),
    [
        ({"max_node_failures": 1}, (), "option max_node_failures needs the option requeue"),
        (
            {"requeue": True, "max_total_time": "1h"},
            (),
            "option max_total_time needs the option resume_dir on AWS Batch",
        ),
        ({"resume_dir": "runs/a"}, (VOLUME,), "'runs/a' is not an absolute path"),
        ({"resume_dir": "/data/a"}, (), "'/data/a' is in no writable EFS volume of role 'main'"),
        ({"resume_dir": "/data2/a"}, (VOLUME,), "'/data2/a' is in no writable EFS volume"),
        ({"resume_dir": "/data/../a"}, (VOLUME,), "'/data/../a' is in no writable EFS volume"),
        (
            {"resume_dir": "/data/a"},
            (VolumeMount("fs-12345678", "/data", True),),
            "'/data/a' is in no writable EFS volume",
        ),
        (
            {"resume_dir": "/data/local/a"},
            (VOLUME, BindMount("/scratch", "/data/local")),
            "'/data/local/a' is in no writable EFS volume",
        ),
    ],
)
def test_request_that_cannot_start_again_as_the_options_say_is_refused(
    scheduler: AWSBatchScheduler, cfg: dict[str, Any], mounts: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(problem)):
        request_of(scheduler, role("main", *mounts), **cfg)


def test_roles_that_do_not_share_the_resume_folder_are_refused(
    scheduler: AWSBatchScheduler,
) -> None:
    other = VolumeMount("fs-87654321", "/data")
    with pytest.raises(RequestError, match="the roles have different volumes at '/data/a'"):
        request_of(scheduler, role("a", VOLUME), role("b", other), resume_dir="/data/a")


@pytest.mark.parametrize("replicas", [1, 2])
def test_request_starts_again_by_the_codes_of_its_script(
    scheduler: AWSBatchScheduler,
    validate: Callable[[str, str, Mapping[str, Any]], None],
    replicas: int,
) -> None:
    main = role("main", VOLUME, args=["${replica_id}"], num_replicas=replicas, max_retries=2)
    job = request_of(scheduler, main, resume_dir="/data/${app_id}")
    validate("batch", "RegisterJobDefinition", job.job_def)
    validate("batch", "SubmitJob", job.submit_parameters("definition"))
    assert job.job_def["retryStrategy"] == {
        "attempts": 10,
        "evaluateOnExit": [
            {"onStatusReason": "Host EC2*", "action": "RETRY"},
            {"onExitCode": "20*", "action": "RETRY"},
            {"onExitCode": "0", "action": "EXIT"},
            {"onStatusReason": "*", "action": "EXIT"},
        ],
    }
    variable = {"name": "TORCHX_RESUME_DIR", "value": f"/data/{job.name}"}
    assert variable in _overrides(job)["environment"]
    # The id of the app is in the override only, so that the next run uses the same definition.
    assert job.name not in str(job.job_def)
    described = {**job.job_def, "jobId": "id", "status": "RUNNING", "attempts": []}
    described["container"] = described.pop("containerProperties", {})
    (found,) = describe("q:app", described, {}).roles
    assert (found.entrypoint, found.args, found.max_retries) == ("sh", _args(replicas), 2)


def _overrides(job: BatchJob) -> dict[str, Any]:
    nodes = job.submission.get("nodeOverrides", {}).get("nodePropertyOverrides")
    found: dict[str, Any] = (nodes[0] if nodes else job.submission)["containerOverrides"]
    return found


def _args(replicas: int) -> list[str]:
    return ["0"] if replicas == 1 else ["${replica_id}"]


def test_app_with_attempts_is_no_child_of_an_array(scheduler: AWSBatchScheduler) -> None:
    assert element_of(request_of(scheduler, role()), "app") is not None
    assert element_of(request_of(scheduler, role(), requeue=True), "app") is None


@pytest.mark.parametrize(
    ("code", "status", "reason", "expected"),
    [
        (0, "Essential container in task exited", "", "succeeded"),
        (3, "Essential container in task exited", "", "failed"),
        (201, "Essential container in task exited", "", "failed"),
        (200, "Essential container in task exited", "", "requested"),
        (210, "Essential container in task exited", "", "requested"),
        (202, "Essential container in task exited", "", "time-limit"),
        (203, "Essential container in task exited", "", "preempted"),
        (None, "Host EC2 (instance i-1) terminated.", "", "node-failure"),
        (137, "Host EC2 (instance i-1) terminated.", "", "node-failure"),
        (214, "Essential container in task exited", "", "node-failure"),
        (
            137,
            "Essential container in task exited",
            "OutOfMemoryError: Container killed due to memory usage",
            "out-of-memory",
        ),
        (137, "Job attempt duration exceeded timeout", "", "time-limit"),
        (None, "Task failed to start", "CannotPullContainerError: x", "failed"),
    ],
)
def test_reason_of_an_attempt(code: int | None, status: str, reason: str, expected: str) -> None:
    container = {"exitCode": code, "reason": reason}
    attempt = {
        "startedAt": 1000,
        "stoppedAt": 2000,
        "statusReason": status,
        "container": {key: value for key, value in container.items() if value not in (None, "")},
    }
    (found,) = attempt_statuses({"attempts": [attempt]}, AppState.FAILED)
    assert (found.number, found.reason) == (0, expected)
    assert found.started is not None
    assert found.ended is not None
    assert (found.ended - found.started).total_seconds() == 1


def test_attempts_of_a_running_and_of_a_cancelled_app() -> None:
    first = {"startedAt": 1000, "stoppedAt": 2000, "container": {"exitCode": 201}}
    job = {"attempts": [first], "startedAt": 3000}
    assert [a.reason for a in attempt_statuses(job, AppState.PENDING)] == ["failed"]
    running = attempt_statuses({**job, "status": "RUNNING"}, AppState.RUNNING)
    assert [(a.number, a.reason, a.ended) for a in running][1:] == [(1, None, None)]
    killed = {"startedAt": 3000, "stoppedAt": 4000, "container": {"exitCode": 203}}
    job = {"attempts": [first, killed]}
    assert [a.reason for a in attempt_statuses(job, AppState.CANCELLED)] == ["failed", "cancelled"]


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_script_decides_what_follows(
    scheduler: AWSBatchScheduler, shell: str, tmp_path: Path
) -> None:
    cfg = {"resume_dir": "/data/a", "requeue_exit_codes": ["4"]}
    job = request_of(scheduler, role("main", VOLUME, max_retries=1), **cfg)
    script = job.job_def["containerProperties"]["command"][2]
    show = 'echo "$TORCHX_ATTEMPT ${TORCHX_RESTART_REASON-none}"; exit '

    def run(number: int, code: int) -> tuple[int, str]:
        env = {
            "PATH": os.environ["PATH"],
            "TORCHX_RESUME_DIR": str(tmp_path / "resume"),
            "AWS_BATCH_JOB_ID": "job",
            "AWS_BATCH_JOB_ATTEMPT": str(number),
        }
        name = ["busybox", "sh"] if shell == "busybox" else [shell]
        argv = [*name, "-c", script, "name", "sh", "-c", f"{show} {code}"]
        try:
            ended = subprocess.run(argv, env=env, capture_output=True, text=True)
        except FileNotFoundError:
            pytest.skip(f"no {shell}")
        return ended.returncode, ended.stdout

    assert run(1, 75) == (200, "0 none\n")
    assert run(2, 4) == (200, "1 requested\n")
    assert run(3, 203) == (201, "2 requested\n")
    assert run(4, 203) == (1, "3 failed\n")  # the code 203 would start the job again
    assert run(5, 9) == (9, "4 failed\n")
    assert run(6, 0) == (0, "5 failed\n")
