"""Names of ``torchx.schedulers.aws_batch_scheduler`` in older TorchX releases."""

from __future__ import annotations

from datetime import timezone

import pytest

from torchx.schedulers.aws_batch_scheduler import (
    DEFAULT_ROLE_NAME,
    JOB_STATE,
    TAG_TORCHX_VER,
    BatchJob,
    ResourceType,
    _job_ui_url,
    _parse_num_replicas,
    _role_to_node_properties,
    instance_type_from_resource,
    resource_from_resource_requirements,
    resource_requirements_from_resource,
    to_datetime,
    to_millis_since_epoch,
)
from torchx_specs import AppState, Resource, Role


def test_functions_kept_for_older_code() -> None:
    resource = Resource(cpu=0, gpu=2, memMB=3)
    required = resource_requirements_from_resource(resource)
    assert required == [
        {"type": "VCPU", "value": "1"},
        {"type": "MEMORY", "value": "3"},
        {"type": "GPU", "value": "2"},
    ]
    assert resource_from_resource_requirements(required) == Resource(cpu=1, gpu=2, memMB=3)
    role = Role("main", "i:1", entrypoint="echo", num_replicas=2, resource=resource)
    with pytest.warns(UserWarning, match="no instance type"):
        properties = _role_to_node_properties(role, 3, privileged=True)
    assert properties["targetNodes"] == "3:4"
    assert properties["container"]["privileged"]
    with pytest.warns(UserWarning, match="no instance type"):
        assert instance_type_from_resource(resource) is None
    assert to_millis_since_epoch(to_datetime(1500).replace(tzinfo=timezone.utc)) == 1500
    assert to_datetime(1500).isoformat() == "1970-01-01T00:00:01.500000"
    assert _job_ui_url("x") is None
    assert _parse_num_replicas("2:", 8) == 6


def test_constants_kept_for_older_code() -> None:
    assert (DEFAULT_ROLE_NAME, TAG_TORCHX_VER) == ("node", "torchx.pytorch.org/version")
    assert JOB_STATE["RUNNABLE"] == AppState.PENDING
    assert [kind.name for kind in ResourceType] == ["VCPU", "GPU", "MEMORY"]
    assert BatchJob("n", "q", None, {}).images_to_push == {}
