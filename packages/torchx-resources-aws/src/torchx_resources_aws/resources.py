"""Named resources from the table of instance types.

``aws_p4d.24xlarge`` is the instance, ``aws_p4d.24xlarge_2`` the part of it that goes with two of
its eight GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from torchx_resources_aws.instances import INSTANCES
from torchx_specs.model.resources import FRACTIONAL_TAG, NAME_TAG, Resource

#: Capability by which schedulers choose the instance type.
K8S_ITYPE = "node.kubernetes.io/instance-type"
EFA_DEVICE = "vpc.amazonaws.com/efa"
NEURON_DEVICE = "aws.amazon.com/neurondevice"
#: How much of an instance's memory a job gets; the system of the host takes the rest.
MEM_TAX = 0.96
_PREFIX = "aws_"


def instance(instance_type: str) -> Resource:
    """Returns a new resource that is a whole instance.

    Args:
        instance_type: ``p4d.24xlarge``

    Raises:
        KeyError: it is not in the table
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
    """Returns a new resource that is ``gpus`` GPUs of an instance, with their share of the rest.

    Shares are rounded down; a device of which less than one would be left is left out. All GPUs are
    the whole instance, by another name.

    Args:
        instance_type: ``p4d.24xlarge``
        gpus: how many of its GPUs

    Raises:
        KeyError: it is not in the table
        ValueError: the instance has not that many
    """
    whole = instance(instance_type)
    if not 0 < gpus <= whole.gpu:
        raise ValueError(f"{instance_type} has {whole.gpu} GPUs, not {gpus}")
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
    """Returns the instance type that a resource asks for, None and a warning if it names none."""
    instance_type = resource.capabilities.get(K8S_ITYPE)
    if instance_type is None:
        import warnings

        warnings.warn(
            f"the resource names no instance type (capability {K8S_ITYPE}): in a pool of several"
            " types, and for jobs of several nodes, it may land on another than meant",
            stacklevel=2,
        )
    return instance_type


def _parts(gpus: int) -> Iterator[int]:
    """Powers of two up to the number of GPUs, if that is one itself and there is more than one."""
    if gpus > 1 and gpus & (gpus - 1) == 0:
        yield from (1 << exponent for exponent in range(gpus.bit_length()))


def _factories() -> Iterator[tuple[str, Callable[[], Resource]]]:
    for instance_type, (_, gpu, _, _, _) in INSTANCES.items():
        yield _PREFIX + instance_type, partial(instance, instance_type)
        for gpus in _parts(gpu):
            yield f"{_PREFIX}{instance_type}_{gpus}", partial(part, instance_type, gpus)


#: Every named resource: whole instances, and parts of those with several GPUs.
NAMED_RESOURCES: dict[str, Callable[[], Resource]] = dict(_factories())


def function_names() -> dict[str, str]:
    """Returns what each is called as a function, and its own name."""
    return {name.replace(".", "_").replace("-", "_"): name for name in NAMED_RESOURCES}
