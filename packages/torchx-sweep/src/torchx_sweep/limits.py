"""The resources that elements need, the limits on their sum, and the resources of this machine."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_cli.output.ranking import with_numbers
from torchx_specs.errors import RequestError, nearest
from torchx_specs.text_values import split_pairs

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef

#: These schedulers run apps on this machine, and start an app when it is submitted.
ON_THIS_MACHINE = frozenset({"local_cwd", "local_docker"})
_GPU_DEVICE = re.compile(r"nvidia\d+\Z")


#: The names of the resources that ``--limit`` limits, which are the keys of :data:`Usage`.
RESOURCES = ("cpus", "gpus", "memMB")
#: The resources of all replicas of an app.
Usage = Counter[str]


def usage(app: AppDef) -> Usage:
    """Return the resources of an app.

    A replica without a number of CPUs counts as one CPU. A negative number of GPUs or amount of
    memory counts as 0.
    """
    total = Usage()
    for role in app.roles:
        resource, n = role.resource, role.num_replicas
        cpus = resource.cpu if resource.cpu > 0 else 1
        total += Usage(
            cpus=n * cpus, gpus=n * max(0, resource.gpu), memMB=n * max(0, resource.memMB)
        )
    return total


def excess(needed: Usage, limits: Mapping[str, float]) -> str | None:
    """Return the name of the first resource that exceeds its limit, or None."""
    return next((name for name, limit in limits.items() if needed[name] > limit), None)


def parse_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Return the limits in values of ``--limit``, such as ``cpus=8,gpus=2,memMB=16000``.

    A value that is no number stays a text, which :func:`checked_limits` refuses.

    Raises:
        RequestError: A text is malformed.
    """
    limits: dict[str, Any] = {}
    for text in texts:
        try:
            limits.update(split_pairs(text))
        except ValueError as e:
            raise RequestError(f"--limit: {e}") from None
    return with_numbers([limits])[0]


def checked_limits(limits: Mapping[str, float]) -> dict[str, float]:
    """Check limits, and return a copy.

    Raises:
        RequestError: A name is unknown, or a limit is not a number.
    """
    for name, limit in limits.items():
        if name not in RESOURCES:
            raise RequestError(
                f"limits: unknown resource '{name}';{nearest(name, RESOURCES)} resources:"
                f" {', '.join(RESOURCES)}"
            )
        if name == "cpus" and isinstance(limit, float) and limit >= 0:
            continue
        check_count(f"the limit of {name}", limit, 0)
    return dict(limits)


def check_count(option: str, value: Any, least: int) -> None:
    """Raise RequestError unless a value is an integer that is not less than ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise RequestError(f"{option} is {value!r}; it must be a number, {least} or more")


def machine_limits() -> dict[str, float]:
    """Return the numbers of CPUs and GPUs that this process may use, and the machine's memory."""
    try:
        cpus = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS lacks this function
        cpus = os.cpu_count() or 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 << 20)
    return {"cpus": cpus, "gpus": _count_gpus(), "memMB": memory}


def _count_gpus() -> int:
    """Return how many GPUs this process may use."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return sum(1 for gpu in given.split(",") if gpu.strip())
    try:
        return sum(1 for name in os.listdir("/dev") if _GPU_DEVICE.match(name))
    except OSError:
        return 0
