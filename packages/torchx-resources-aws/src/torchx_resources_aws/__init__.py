"""AWS instance types as named resources: ``resource(h="aws_p4d.24xlarge")``.

Each resource is also a function of this module. In the function's name, ``_`` replaces ``.`` and
``-``: ``aws_p4d_24xlarge()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_resources_aws.resources import EFA_DEVICE as EFA_DEVICE
    from torchx_resources_aws.resources import K8S_ITYPE as K8S_ITYPE
    from torchx_resources_aws.resources import MEM_TAX as MEM_TAX
    from torchx_resources_aws.resources import NAMED_RESOURCES as NAMED_RESOURCES
    from torchx_resources_aws.resources import NEURON_DEVICE as NEURON_DEVICE
    from torchx_resources_aws.resources import instance as instance
    from torchx_resources_aws.resources import (
        instance_type_from_resource as instance_type_from_resource,
    )
    from torchx_resources_aws.resources import part as part

_attribute, _, __all__ = attach(
    __name__,
    {
        "torchx_resources_aws.resources": (
            "EFA_DEVICE",
            "K8S_ITYPE",
            "MEM_TAX",
            "NAMED_RESOURCES",
            "NEURON_DEVICE",
            "instance",
            "instance_type_from_resource",
            "part",
        ),
    },
    submodules=("instances", "resources"),
)


def __getattr__(name: str) -> Any:
    if name.startswith("aws_"):
        from torchx_resources_aws.resources import NAMED_RESOURCES, function_names

        registered = function_names().get(name)
        if registered is not None:
            return NAMED_RESOURCES[registered]
    return _attribute(name)


def __dir__() -> list[str]:
    from torchx_resources_aws.resources import function_names

    return sorted({*__all__, *function_names()})
