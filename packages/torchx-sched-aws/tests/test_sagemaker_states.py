"""States, reasons and exit codes of training jobs."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.sagemaker.states import exit_code, job_state, restart_count, state_reason
from torchx_specs import AppState


def transitions(*statuses: str) -> list[dict[str, Any]]:
    return [{"Status": status, "StatusMessage": f"m {status}"} for status in statuses]


@pytest.mark.parametrize(
    ("status", "secondary", "state"),
    [
        ("InProgress", "Starting", AppState.PENDING),
        ("InProgress", "Pending", AppState.PENDING),
        ("InProgress", "Downloading", AppState.PENDING),
        ("InProgress", "Interrupted", AppState.PENDING),
        ("InProgress", "Training", AppState.RUNNING),
        ("InProgress", "Uploading", AppState.RUNNING),
        ("InProgress", "SomethingNew", AppState.RUNNING),
        ("Completed", "Completed", AppState.SUCCEEDED),
        ("Failed", "Failed", AppState.FAILED),
        ("Stopping", "Stopping", AppState.RUNNING),
        ("Stopped", "Stopped", AppState.CANCELLED),
        ("Stopped", "MaxRuntimeExceeded", AppState.FAILED),
        ("Stopped", "MaxWaitTimeExceeded", AppState.FAILED),
        ("SomethingNew", "", AppState.UNKNOWN),
    ],
)
def test_job_state_maps_sagemaker_statuses(status: str, secondary: str, state: AppState) -> None:
    assert job_state(status, secondary) == state


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("AlgorithmError: , exit code: 137", 137),
        ('AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage ""', 1),
        ("ClientError: no such image", None),
    ],
)
def test_exit_code_is_read_from_the_failure_reason(reason: str, code: int | None) -> None:
    assert exit_code({"TrainingJobStatus": "Failed", "FailureReason": reason}) == code


def test_state_reason_and_restart_count() -> None:
    history = transitions("Starting", "Training", "Interrupted", "Starting", "Training")
    job = {"SecondaryStatus": "Training", "SecondaryStatusTransitions": history}
    assert state_reason(job) == "Training: m Training"
    assert restart_count(job) == 1
    history += transitions("Interrupted", "Restarting", "Downloading")
    assert restart_count({"SecondaryStatusTransitions": history}) == 1
    history += transitions("Training", "Uploading", "Completed")
    assert restart_count({"SecondaryStatusTransitions": history}) == 2
    failed = {"TrainingJobStatus": "Failed", "FailureReason": "a\n  b"}
    assert state_reason(failed) == "a b"
    assert state_reason({"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}) == ""
    assert exit_code({"TrainingJobStatus": "Completed"}) == 0
