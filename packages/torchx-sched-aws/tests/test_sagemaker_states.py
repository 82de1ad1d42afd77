"""States, reasons and exit codes of training jobs."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.sagemaker.states import exit_code_of, job_state, reason_of, restarts_of
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
def test_states(status: str, secondary: str, state: AppState) -> None:
    assert job_state(status, secondary) == state


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("AlgorithmError: , exit code: 137", 137),
        ('AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage ""', 1),
        ("ClientError: no such image", None),
    ],
)
def test_exit_codes(reason: str, code: int | None) -> None:
    assert exit_code_of({"TrainingJobStatus": "Failed", "FailureReason": reason}) == code


def test_reasons_and_restarts() -> None:
    walked = transitions("Starting", "Training", "Interrupted", "Starting", "Training")
    job = {"SecondaryStatus": "Training", "SecondaryStatusTransitions": walked}
    assert reason_of(job) == "Training: m Training"
    assert restarts_of(job) == 1
    failed = {"TrainingJobStatus": "Failed", "FailureReason": "a\n  b"}
    assert reason_of(failed) == "a b"
    assert reason_of({"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}) == ""
    assert exit_code_of({"TrainingJobStatus": "Completed"}) == 0
