"""Resource requirements of a role."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Tag under which a resource keeps the name it was registered with.
NAME_TAG = "torchx/named_resources.name"
#: Tag that marks a fractional slice of a base resource.
FRACTIONAL_TAG = "torchx/named_resources.is_fractional"


@dataclass
class Resource:
    """Resource requirements of one replica of a role.

    >>> Resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        cpu: number of logical cpu cores
        gpu: number of gpus
        memMB: MB of ram
        capabilities: additional hardware specs (interpreted by the scheduler)
        devices: named devices with their quantities (``{"vpc.amazonaws.com/efa": 1}``)
        tags: metadata that schedulers do not interpret
    """

    cpu: int
    gpu: int
    memMB: int  # noqa: N815 - the documented name
    capabilities: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    tags: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def copy(original: Resource, **capabilities: Any) -> Resource:
        """Returns a copy of ``original`` with the given capabilities merged in."""
        return Resource(
            cpu=original.cpu,
            gpu=original.gpu,
            memMB=original.memMB,
            capabilities={**original.capabilities, **capabilities},
            devices=dict(original.devices),
            tags=dict(original.tags),
        )

    def get_resource_name(self) -> str | None:
        """Returns the name this resource is registered under, or None."""
        name = self.tags.get(NAME_TAG)
        return name if isinstance(name, str) else None

    def is_fractional(self) -> bool:
        """Returns True if this is a fractional slice of a base resource."""
        return bool(self.tags.get(FRACTIONAL_TAG, False))


#: The resource of a role that asks for nothing.
NULL_RESOURCE = Resource(cpu=-1, gpu=-1, memMB=-1)

DEFAULT_CPU = 2
DEFAULT_GPU = 0
DEFAULT_MEM_MB = 1024


def resource(
    cpu: int | None = None,
    gpu: int | None = None,
    memMB: int | None = None,  # noqa: N803 - the documented name
    h: str | None = None,
) -> Resource:
    """Creates a resource from raw values, or from a named resource, which wins.

    >>> resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        cpu: cpu cores, 2 unless given
        gpu: gpus, 0 unless given
        memMB: MB of ram, 1024 unless given
        h: name of a registered resource (``gpu.small``), in any letter case

    Raises:
        NamedResourceNotFoundError: no resource ``h`` (also a KeyError)
    """
    if h:
        from torchx_specs.resources.registry import lookup

        return lookup(h)
    return Resource(cpu=cpu or DEFAULT_CPU, gpu=gpu or DEFAULT_GPU, memMB=memMB or DEFAULT_MEM_MB)
