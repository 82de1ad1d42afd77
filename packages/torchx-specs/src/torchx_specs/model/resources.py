"""Resource requirements of a role."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

#: Key in ``Resource.tags``: the name under which the resource is registered.
NAME_TAG = "torchx/named_resources.name"
#: Key in ``Resource.tags``: True for a fractional slice of a base resource.
FRACTIONAL_TAG = "torchx/named_resources.is_fractional"


@dataclass
class Resource:
    """Resource requirements of one replica of a role.

    >>> Resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        cpu: Number of logical CPU cores.
        gpu: Number of GPUs.
        memMB: Memory in MB.
        capabilities: Further hardware properties, which the scheduler interprets.
        devices: Quantities by device name (``{"vpc.amazonaws.com/efa": 1}``).
        tags: Metadata that schedulers do not interpret.
    """

    cpu: int
    gpu: int
    memMB: int  # noqa: N815 - the documented name
    capabilities: dict[str, Any] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)
    tags: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def copy(original: Resource, **capabilities: Any) -> Resource:
        """Return a copy of ``original`` with the given capabilities added."""
        added = {**original.capabilities, **capabilities}
        devices, tags = dict(original.devices), dict(original.tags)
        return Resource(original.cpu, original.gpu, original.memMB, added, devices, tags)

    def get_resource_name(self) -> str | None:
        """Return the name under which this resource is registered; None if it has none."""
        name = self.tags.get(NAME_TAG)
        return name if isinstance(name, str) else None

    def is_fractional(self) -> bool:
        """Return True if this is a fraction of a base resource."""
        return bool(self.tags.get(FRACTIONAL_TAG, False))


#: The resource of a role without requirements.
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
    """Return a resource with the given values, or a named resource.

    >>> resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        cpu: CPU cores; None or 0 means 2.
        gpu: GPUs (default: 0).
        memMB: Memory in MB; None or 0 means 1024.
        h: Name of a registered resource (``gpu.small``), in any letter case. It wins over the
            other arguments.

    Raises:
        NamedResourceNotFoundError: No resource has the name ``h`` (also a KeyError).
    """
    if h:
        from torchx_specs.resources.registry import lookup

        return lookup(h)
    return Resource(cpu=cpu or DEFAULT_CPU, gpu=gpu or DEFAULT_GPU, memMB=memMB or DEFAULT_MEM_MB)
