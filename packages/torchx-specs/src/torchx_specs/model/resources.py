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
