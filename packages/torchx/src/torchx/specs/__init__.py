"""Core types: the same objects as ``torchx_specs``'s."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx._forward import forward

if TYPE_CHECKING:
    from torchx._modules import import_attr as import_attr
    from torchx.util.entrypoints import load_group as load_group
    from torchx_resources_aws import NAMED_RESOURCES as AWS_NAMED_RESOURCES
    from torchx_specs import *
    from torchx_specs.named_resources_generic import NAMED_RESOURCES as GENERIC_NAMED_RESOURCES
    from torchx_specs.resource_registry import NamedResources as _NamedResourcesLibrary
    from torchx_specs.resource_registry import (
        _named_resource_factories as _named_resource_factories,
    )

forward(
    __name__,
    "torchx_specs",
    names={
        "_named_resource_factories": "torchx_specs.resource_registry",
        "_NamedResourcesLibrary": "torchx_specs.resource_registry:NamedResources",
        "GENERIC_NAMED_RESOURCES": "torchx_specs.named_resources_generic:NAMED_RESOURCES",
        "AWS_NAMED_RESOURCES": "torchx_resources_aws:NAMED_RESOURCES",
        "import_attr": "torchx._modules",
        "load_group": "torchx.util.entrypoints",
    },
    exported=(
        "ALL",
        "AppDef",
        "AppDryRunInfo",
        "AppHandle",
        "AppState",
        "AppStatus",
        "BindMount",
        "CapabilityKey",
        "CfgVal",
        "DeviceMount",
        "InvalidRunConfigException",
        "MISSING",
        "MalformedAppHandleException",
        "NA",
        "NONE",
        "NULL_RESOURCE",
        "ParsedAppHandle",
        "ReplicaState",
        "ReplicaStatus",
        "Resource",
        "RetryPolicy",
        "Role",
        "RoleStatus",
        "TORCHX_CONTEXT_NAME",
        "TORCHX_HOME",
        "UNKNOWN",
        "UnknownAppException",
        "UnknownSchedulerException",
        "VolumeMount",
        "Workspace",
        "app_metadata",
        "cases",
        "get_named_resources",
        "get_type_name",
        "is_terminal",
        "macros",
        "make_app_handle",
        "materialize_appdef",
        "named_resources",
        "parse_app_handle",
        "parse_mounts",
        "resource",
        "runopt",
        "runopts",
    ),
)
