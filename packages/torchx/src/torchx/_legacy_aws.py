"""Names of ``aws_batch_scheduler`` in older TorchX releases. TorchX itself needs none of them."""

from __future__ import annotations

import warnings
from datetime import datetime, timezone
from typing import Any

from torchx_sched_aws.batch.describe import job_ui_url
from torchx_sched_aws.batch.options import INSTANCE_TYPE, AWSBatchOpts
from torchx_sched_aws.batch.request import _container
from torchx_sched_aws.cloudwatch import to_milliseconds
from torchx_specs.model.app import Role
from torchx_specs.model.resources import Resource


def instance_type_from_resource(resource: Resource) -> str | None:
    """Return the instance type that a resource names; if there is none, warn and return None."""
    found = resource.capabilities.get(INSTANCE_TYPE)
    if found is None:
        warnings.warn(
            f"the resource has no instance type (capability {INSTANCE_TYPE}); a multi-node job may"
            " run on any instance type of its queue",
            stacklevel=2,
        )
    return found


def to_datetime(ms_since_epoch: int) -> datetime:
    """Convert milliseconds since 1970 to a UTC datetime without a time zone."""
    return datetime.fromtimestamp(ms_since_epoch / 1000, timezone.utc).replace(tzinfo=None)


def to_millis_since_epoch(ts: datetime) -> int:
    """Convert a datetime (local time if it has no time zone) to milliseconds since 1970."""
    return to_milliseconds(ts)


def _job_ui_url(job_arn: str) -> str | None:
    """Return the console address of a multi-node job, or None if ``job_arn`` is not a job's ARN."""
    return job_ui_url(job_arn)


def _role_to_node_properties(
    role: Role,
    start_idx: int,
    privileged: bool = False,
    job_role_arn: str | None = None,
    execution_role_arn: str | None = None,
) -> dict[str, Any]:
    """Return a role as a node range of a job definition."""
    opts = AWSBatchOpts(
        queue="q",
        privileged=privileged,
        job_role_arn=job_role_arn,
        execution_role_arn=execution_role_arn,
    )
    container, _ = _container(role, 0, start_idx, role.name, opts, overridden=False)
    kind = instance_type_from_resource(role.resource)
    if kind:
        container["instanceType"] = kind
    return {
        "targetNodes": f"{start_idx}:{start_idx + role.num_replicas - 1}",
        "container": container,
    }
