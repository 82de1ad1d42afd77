"""Named resources made from the table of instance types.

``aws_p4d.24xlarge`` is a whole instance. ``aws_p4d.24xlarge_2`` is a quarter of this instance: two
of eight GPUs, and a quarter of the CPUs, the memory and the devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torchx_resources_aws.instances import INSTANCES
from torchx_specs.model.resources import FRACTIONAL_TAG, NAME_TAG, Resource

#: Name of the capability that has the instance type as its value; schedulers read the capability.
K8S_ITYPE = "node.kubernetes.io/instance-type"
EFA_DEVICE = "vpc.amazonaws.com/efa"
NEURON_DEVICE = "aws.amazon.com/neurondevice"
#: Fraction of an instance's memory that a job gets; the host needs the rest.
MEM_TAX = 0.96
_PREFIX = "aws_"


def instance(instance_type: str) -> Resource:
    """Return a new resource for a whole instance.

    Args:
        instance_type: Name of the instance type, for example ``p4d.24xlarge``.

    Raises:
        KeyError: The table has no such instance type.
    """
    cpu, gpu, memory, efa, neuron = INSTANCES[instance_type]
    devices = {EFA_DEVICE: efa, NEURON_DEVICE: neuron}
    return Resource(
        cpu=cpu,
        gpu=gpu,
        memMB=memory,
        capabilities={K8S_ITYPE: instance_type},
        devices={name: count for name, count in devices.items() if count},
        tags={NAME_TAG: _PREFIX + instance_type},
    )


def part(instance_type: str, gpus: int) -> Resource:
    """Return a new resource for some GPUs of an instance, with a proportional share of the rest.

    Shares are rounded down; a device is left out if its share is less than one. With all GPUs, the
    resource equals the whole instance, except for the tags.

    Args:
        instance_type: Name of the instance type, for example ``p4d.24xlarge``.
        gpus: Number of GPUs.

    Raises:
        KeyError: The table has no such instance type.
        ValueError: ``gpus`` is less than one, or the instance has fewer GPUs.
    """
    whole = instance(instance_type)
    if not 0 < gpus <= whole.gpu:
        raise ValueError(f"{instance_type} has {whole.gpu} GPUs; cannot make a part with {gpus}")
    shares = {name: count * gpus // whole.gpu for name, count in whole.devices.items()}
    return Resource(
        cpu=whole.cpu * gpus // whole.gpu,
        gpu=gpus,
        memMB=whole.memMB * gpus // whole.gpu,
        capabilities=whole.capabilities,
        devices={name: count for name, count in shares.items() if count},
        tags={
            NAME_TAG: f"{_PREFIX}{instance_type}_{gpus}",
            FRACTIONAL_TAG: gpus != whole.gpu,
        },
    )


def instance_type_from_resource(resource: Resource) -> str | None:
    """Return the instance type that a resource names, or None with a warning."""
    instance_type = resource.capabilities.get(K8S_ITYPE)
    if instance_type is None:
        import warnings

        warnings.warn(
            f"the resource has no instance type (capability {K8S_ITYPE}); the job may run on any"
            " instance type of its pool or queue",
            stacklevel=2,
        )
    return instance_type


def _parts(gpus: int) -> Iterator[int]:
    """Yield 1, 2, 4 and so on up to ``gpus``, if ``gpus`` is a power of two and more than one."""
    if gpus > 1 and gpus & (gpus - 1) == 0:
        yield from (1 << exponent for exponent in range(gpus.bit_length()))


def _factories() -> Iterator[tuple[str, Callable[[], Resource]]]:
    for instance_type, (_, gpu, _, _, _) in INSTANCES.items():
        yield _PREFIX + instance_type, partial(instance, instance_type)
        for gpus in _parts(gpu):
            yield f"{_PREFIX}{instance_type}_{gpus}", partial(part, instance_type, gpus)


#: All named resources: instances, and parts of instances with several GPUs.
NAMED_RESOURCES: dict[str, Callable[[], Resource]] = dict(_factories())


def function_names() -> dict[str, str]:
    """Map the name of each function of this package to the name of the function's resource."""
    return {name.replace(".", "_").replace("-", "_"): name for name in NAMED_RESOURCES}
