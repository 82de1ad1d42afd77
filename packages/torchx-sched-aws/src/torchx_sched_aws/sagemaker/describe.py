"""Description of a training job as an app: its role, replicas and metadata."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timezone
from typing import Any

from torchx_kit.jobs.descriptions import set_times
from torchx_sched_aws.client import console_url
from torchx_sched_aws.command import read_training_command
from torchx_sched_aws.sagemaker.request import ENV_TORCHX_ROLE_NAME
from torchx_sched_aws.sagemaker.states import exit_code, job_state, restart_count, state_reason
from torchx_specs.errors import one_line
from torchx_specs.model.app import Role
from torchx_specs.model.constants import MISSING, NONE
from torchx_specs.model.status import ReplicaStatus, RoleStatus
from torchx_specs.schedulers.api import DescribeAppResponse

#: Role name if the job has no variable with the role's name.
DEFAULT_ROLE_NAME = "trainer"


def describe(app_id: str, job: Mapping[str, Any]) -> DescribeAppResponse:
    """Return the description of an app.

    Args:
        app_id: Id of the app.
        job: The training job, as ``DescribeTrainingJob`` returns it.
    """
    secondary = str(job.get("SecondaryStatus") or "")
    state = job_state(job["TrainingJobStatus"], secondary)
    role = read_role(job)
    arn = str(job["TrainingJobArn"])
    restarts = restart_count(job)
    reason = state_reason(job)
    code = exit_code(job)
    replicas = [
        ReplicaStatus(
            k,
            state,
            role.name,
            hostname=f"algo-{k + 1}",
            reason=reason,
            exit_code=code,
            restarts=restarts,
        )
        for k in range(role.num_replicas)
    ]
    described = DescribeAppResponse(
        app_id,
        state,
        num_restarts=restarts,
        msg=reason or NONE,
        ui_url=console_url(arn, "sagemaker", f"jobs/{arn.rpartition('/')[2]}"),
        metadata=_metadata(job),
        roles_statuses=[RoleStatus(role.name, replicas)],
        roles=[role],
    )
    # SageMaker reports the times of the job only, not those of its instances.
    started, ended = job.get("TrainingStartTime"), job.get("TrainingEndTime")
    set_times(described, job.get("CreationTime"), started=started, ended=ended)
    return described


def read_role(job: Mapping[str, Any]) -> Role:
    """Return the role of a training job, as far as SageMaker stores it."""
    environment = dict(job.get("Environment") or {})
    algorithm = job.get("AlgorithmSpecification") or {}
    command = read_training_command(algorithm)
    name = environment.get(ENV_TORCHX_ROLE_NAME, DEFAULT_ROLE_NAME)
    return Role(
        name,
        str(algorithm.get("TrainingImage") or algorithm.get("AlgorithmName") or ""),
        entrypoint=command[0] if command else MISSING,
        args=command[1:],
        env=environment,
        num_replicas=_instances(job.get("ResourceConfig") or {}),
        max_retries=int((job.get("RetryStrategy") or {}).get("MaximumRetryAttempts") or 0),
    )


def _instances(resources: Mapping[str, Any]) -> int:
    groups = resources.get("InstanceGroups") or ()
    return sum(int(g["InstanceCount"]) for g in groups) or int(resources.get("InstanceCount") or 1)


def _metadata(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the metadata of an app: secondary statuses, location of the output, durations."""
    found = {"secondary_status": str(job.get("SecondaryStatus") or "")}
    for i, item in enumerate(job.get("SecondaryStatusTransitions") or ()):
        message = one_line(item.get("StatusMessage") or "")
        began = item["StartTime"].astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        found[f"transition/{i:02}"] = f"{began} {item['Status']}" + (
            f": {message}" if message else ""
        )
    artifacts = (job.get("ModelArtifacts") or {}).get("S3ModelArtifacts")
    if artifacts:
        found["model_artifacts"] = str(artifacts)
    for key in ("TrainingTimeInSeconds", "BillableTimeInSeconds"):
        if job.get(key) is not None:
            found[key] = str(job[key])
    return found
