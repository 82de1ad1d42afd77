"""Generic named resources ("t-shirt sizes") that belong to no cloud.

Defaults for components and examples. The ratios follow current hardware, map to no particular
instance type, and may change; register named resources of your own for what you rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchx_specs.model.constants import GiB
from torchx_specs.model.resources import Resource


def _gpu_small() -> Resource:
    return Resource(cpu=8, gpu=1, memMB=32 * GiB)


def _gpu_medium() -> Resource:
    return Resource(cpu=16, gpu=2, memMB=64 * GiB)


def _gpu_large() -> Resource:
    return Resource(cpu=32, gpu=4, memMB=128 * GiB)


def _gpu_xlarge() -> Resource:
    return Resource(cpu=64, gpu=8, memMB=256 * GiB)


def _cpu_nano() -> Resource:
    return Resource(cpu=1, gpu=0, memMB=512)


def _cpu_micro() -> Resource:
    return Resource(cpu=1, gpu=0, memMB=1 * GiB)


def _cpu_small() -> Resource:
    return Resource(cpu=1, gpu=0, memMB=2 * GiB)


def _cpu_medium() -> Resource:
    return Resource(cpu=2, gpu=0, memMB=4 * GiB)


def _cpu_large() -> Resource:
    return Resource(cpu=2, gpu=0, memMB=8 * GiB)


def _cpu_xlarge() -> Resource:
    return Resource(cpu=8, gpu=0, memMB=32 * GiB)


NAMED_RESOURCES: Mapping[str, Callable[[], Resource]] = {
    "gpu.small": _gpu_small,
    "gpu.medium": _gpu_medium,
    "gpu.large": _gpu_large,
    "gpu.xlarge": _gpu_xlarge,
    "cpu.nano": _cpu_nano,
    "cpu.micro": _cpu_micro,
    "cpu.small": _cpu_small,
    "cpu.medium": _cpu_medium,
    "cpu.large": _cpu_large,
    "cpu.xlarge": _cpu_xlarge,
}
