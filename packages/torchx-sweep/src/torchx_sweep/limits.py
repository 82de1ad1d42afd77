"""The resources that elements need, the limits on their sum, and the resources of this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_specs.errors import RequestError, nearest
from torchx_specs.text_values import split_pairs

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef

#: These schedulers run apps on this machine, and start an app when it is submitted.
ON_THIS_MACHINE = frozenset({"local_cwd", "local_docker"})
_GPU_DEVICE = re.compile(r"nvidia\d+\Z")


class Usage(NamedTuple):
    """The resources of all replicas of an app."""

    cpus: float = 0
    gpus: int = 0
    memMB: int = 0  # noqa: N815 - the name of the field of Resource

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(self.cpus + other.cpus, self.gpus + other.gpus, self.memMB + other.memMB)

    def excess(self, limits: Mapping[str, float]) -> str | None:
        """Return the name of the first resource that exceeds its limit, or None."""
        for name, limit in limits.items():
            if getattr(self, name) > limit:
                return name
        return None


def usage(app: AppDef) -> Usage:
    """Return the resources of an app.

    A replica without a number of CPUs counts as one CPU. A negative number of GPUs or amount of
    memory counts as 0.
    """
    total = Usage()
    for role in app.roles:
        resource, n = role.resource, role.num_replicas
        cpus = resource.cpu if resource.cpu > 0 else 1
        total += Usage(n * cpus, n * max(0, resource.gpu), n * max(0, resource.memMB))
    return total


def parse_limits(texts: Iterable[str]) -> dict[str, float]:
    """Return the limits in values of ``--limit``, such as ``cpus=8,gpus=2,memMB=16000``.

    Raises:
        RequestError: A text is malformed, a name is unknown, or a limit is not a valid number.
    """
    limits: dict[str, float] = {}
    for text in texts:
        try:
            pairs = split_pairs(text)
        except ValueError as e:
            raise RequestError(f"--limit: {e}") from None
        for name, value in pairs:
            try:
                limits[name] = float(value) if "." in value else int(value)
            except ValueError:
                raise RequestError(f"--limit {name}={value}: must be a number, 0 or more") from None
    return checked_limits(limits)


def checked_limits(limits: Mapping[str, float]) -> dict[str, float]:
    """Check limits, and return a copy.

    Raises:
        RequestError: A name is unknown, or a limit is not a number.
    """
    for name, limit in limits.items():
        if name not in Usage._fields:
            raise RequestError(
                f"limits: unknown resource '{name}';{nearest(name, Usage._fields)} resources:"
                f" {', '.join(Usage._fields)}"
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


def largest_problem(number: int, element: Usage, limits: Mapping[str, float]) -> str | None:
    """Return why an element can never run within the limits, or None if it can.

    Args:
        number: The element's number.
        element: The element's resources.
        limits: The limits.
    """
    name = element.excess(limits)
    if name is None:
        return None
    return (
        f"element {number} needs {name}={getattr(element, name)}, but the limit is"
        f" {limits[name]}; use a smaller resource or --limit {name}=N"
    )
