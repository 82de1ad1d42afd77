"""States, reasons and exit codes of Batch jobs."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.batch.states import (
    JOB_STATE,
    exit_code,
    job_state,
    restart_count,
    state_reason,
)
from torchx_specs import AppState


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
def test_job_state_maps_batch_statuses(status: str, state: AppState) -> None:
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
def test_cancelled_job_is_not_failed(fields: dict[str, Any]) -> None:
    assert job_state({"status": "FAILED", **fields}) == AppState.CANCELLED
    assert job_state({"status": "SUCCEEDED", **fields}) == AppState.SUCCEEDED
    assert job_state({"status": "NEW"}) == AppState.UNKNOWN


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (
            {"status": "RUNNABLE"},
            (
                "waiting for an instance: AWS Batch starts or waits for an instance; wait a few"
                " minutes; then compare the request with the compute environment"
            ),
        ),
        ({"status": "RUNNABLE", "statusReason": "UNKNOWN:x - y"}, "UNKNOWN:x - y"),
        (
            {"status": "RUNNABLE", "statusReason": "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - x"},
            (
                "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - x: the job requests more than the"
                " compute environments of its queue can have; request less, raise maxvCpus or add"
                " larger instance types, or use another queue"
            ),
        ),
        (
            {
                "status": "RUNNABLE",
                "statusReason": "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill"
                " the capacity requested for instance type [p5.48xlarge]",
            },
            (
                "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity"
                " requested for instance type [p5.48xlarge]: AWS has no free instance of this type"
                " now; wait, or allow more instance types or zones in the compute environment"
            ),
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
def test_state_reason_joins_the_reasons_of_batch(job: dict[str, Any], reason: str) -> None:
    assert state_reason(job) == reason


def test_exit_code() -> None:
    assert exit_code({"container": {"exitCode": 0}}) == 0
    assert exit_code({"container": {"exitCode": 143}}) == -15
    assert exit_code({"attempts": [attempt(1), attempt(2)]}) == 2
    assert exit_code({}) is None


@pytest.mark.parametrize("status", [*JOB_STATE])
def test_restart_count_has_the_attempts_that_have_started(status: str) -> None:
    ended = [{**attempt(1), "startedAt": start, "stoppedAt": start + 5} for start in (10, 20, 30)]
    is_running = status == "RUNNING"
    assert restart_count({"status": status, "attempts": [], "startedAt": 10}) == 0
    for count in (1, 2, 3):
        job = {"status": status, "attempts": ended[:count]}
        assert restart_count({**job, "startedAt": 40}) == count - (not is_running)
        # Batch has noted the end of the attempt, and not yet that the job waits for the next one.
        assert restart_count({**job, "startedAt": count * 10}) == count - 1
