"""Divides this machine's GPUs among replicas; a GPU belongs to one replica at a time."""

from __future__ import annotations

import fcntl
import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchx_sched_local.request import PopenRequest, ReplicaParam
from torchx_specs.model.app import AppDef

if TYPE_CHECKING:
    from torchx_sched_local.store.app_run import ReplicaRun

ENV_CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
# The driver's description of each GPU, and the folder of the devices.
_DESCRIPTIONS = "/proc/driver/nvidia/gpus/*/information"
_DEVICES = "/dev"


def device_count() -> int:
    """Return how many GPUs ``nvidia-smi`` lists, or 0 if this command fails."""
    return _device_count(os.environ.get("PATH"))


@functools.lru_cache(maxsize=1)
def _device_count(path: str | None) -> int:
    import subprocess

    try:
        out = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(1 for line in out.stdout.splitlines() if line.strip())


def visible_gpus(devices: int) -> list[str]:
    """Return the GPUs that this process may use: the ids in ``CUDA_VISIBLE_DEVICES``, or indices.

    Args:
        devices: How many GPUs this machine has.
    """
    given = os.environ.get(ENV_CUDA_VISIBLE_DEVICES)
    if given is None:
        return [str(index) for index in range(devices)]
    return [gpu.strip() for gpu in given.split(",") if gpu.strip()]


def requested_gpus(app: AppDef) -> int:
    """Return how many GPUs all replicas of an app request."""
    return sum(role.num_replicas * max(role.resource.gpu, 0) for role in app.roles)


def divide_gpus(role_params: dict[str, list[ReplicaParam]], app: AppDef, gpus: list[str]) -> None:
    """Assign GPUs to each replica with the environment variable ``CUDA_VISIBLE_DEVICES``.

    If the app requests more GPUs than there are, none are assigned, and a warning is logged. A role
    that sets the variable itself keeps its value.

    Args:
        role_params: The replicas, changed in place.
        app: The app; its roles have the number of GPUs for each replica.
        gpus: The GPUs that this process may use.
    """
    requested = requested_gpus(app)
    if requested > len(gpus):
        import logging

        logging.getLogger(__name__).warning(
            "app '%s' requests %d GPUs, but this machine has %d: %s is not set, so every replica"
            " sees all of them",
            app.name,
            requested,
            len(gpus),
            ENV_CUDA_VISIBLE_DEVICES,
        )
        return
    first = 0
    for role in app.roles:
        each = max(role.resource.gpu, 0)
        for param in role_params[role.name] if each else ():
            if ENV_CUDA_VISIBLE_DEVICES not in role.env:
                param.env[ENV_CUDA_VISIBLE_DEVICES] = ",".join(gpus[first : first + each])
            first += each


def claimed_gpus(role_params: Mapping[str, list[ReplicaParam]], app: AppDef) -> dict[str, int]:
    """Return how many GPUs each replica of a role claims, after :func:`divide_gpus`."""
    return {
        role.name: role.resource.gpu
        for role in app.roles
        if role.resource.gpu > 0
        and ENV_CUDA_VISIBLE_DEVICES not in role.env
        and any(ENV_CUDA_VISIBLE_DEVICES in param.env for param in role_params[role.name])
    }


class GpuClaims:
    """The GPUs that the replicas of an app have.

    A claim is a lock (``flock``) on the file of the device, so that the apps of all users see it,
    and the kernel releases it when this process ends.

    Args:
        request: The app's request.
    """

    def __init__(self, request: PopenRequest) -> None:
        self._counts = request.gpus or {}
        self._params = request.role_params
        self._held: dict[ReplicaRun, dict[str, int]] = {}

    def claim(self, replicas: Sequence[ReplicaRun]) -> bool:
        """Claim the GPUs of all these replicas, or of none; return False if too few are free.

        A replica that has its GPUs already keeps them.
        """
        needed = {r: self._counts.get(r.role, 0) for r in replicas if r not in self._held}
        total = sum(needed.values())
        if not total:
            return True
        own = {gpu for held in self._held.values() for gpu in held}
        first = self._params[replicas[0].role][replicas[0].id].env
        # The GPUs of the request come first.
        wanted = first.get(ENV_CUDA_VISIBLE_DEVICES, "").split(",")
        paths = _device_paths()
        devices = sum(map(str.isdigit, paths)) or device_count()
        free: dict[str, int] = {}
        for gpu in dict.fromkeys([*wanted, *visible_gpus(devices)]):
            if len(free) < total and gpu and gpu not in own:
                fd = _lock(paths.get(gpu))
                if fd is not None:
                    free[gpu] = fd
        if len(free) < total:
            _close(free)
            return False
        gpus = list(free)
        for replica, count in needed.items():
            self._held[replica] = {gpu: free[gpu] for gpu in gpus[:count]}
            del gpus[:count]
        return True

    def environment(self, replica: ReplicaRun) -> Mapping[str, str]:
        """Return the variables by which a replica sees its GPUs only."""
        held = self._held.get(replica)
        return {ENV_CUDA_VISIBLE_DEVICES: ",".join(held)} if held else {}

    def uuids(self, replica: ReplicaRun) -> list[str]:
        """Return the UUIDs of a replica's GPUs, or the index of a GPU whose UUID is unknown."""
        held = self._held.get(replica)
        if not held:
            return []
        paths = _device_paths()
        uuids = {path: name for name, path in paths.items() if not name.isdigit()}
        return [uuids.get(paths.get(gpu, ""), gpu) for gpu in held]

    def release(self, replica: ReplicaRun) -> None:
        """Release the GPUs of a replica."""
        _close(self._held.pop(replica, {}))

    def close(self) -> None:
        """Release all GPUs."""
        for replica in list(self._held):
            self.release(replica)


def _device_paths() -> dict[str, str]:
    """Return the file of each GPU, by its index in the order of the PCI bus and by its UUID."""
    import glob  # imported here, so that start-up does not load it

    found: dict[str, str] = {}
    for index, path in enumerate(sorted(glob.glob(_DESCRIPTIONS))):
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        minor = re.search(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)
        uuid = re.search(r"^GPU UUID:\s*(\S+)", text, re.MULTILINE)
        if minor:
            found[str(index)] = f"{_DEVICES}/nvidia{minor[1]}"
            if uuid:
                found[uuid[1]] = found[str(index)]
    return found


def _lock(path: str | None) -> int | None:
    """Lock a device, and return its descriptor; None if it is locked, -1 if it has no file."""
    if path is None:
        return -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _close(gpus: dict[str, int]) -> None:
    for fd in gpus.values():
        if fd >= 0:
            os.close(fd)
