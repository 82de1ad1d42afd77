"""Dividing this machine's GPUs over replicas."""

from __future__ import annotations

from torchx_sched_local.request import ReplicaParam
from torchx_specs.model.app import AppDef

ENV_CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def device_count() -> int:
    """Returns how many GPUs ``nvidia-smi`` lists, 0 if it isn't there."""
    import subprocess

    try:
        out = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(1 for line in out.stdout.splitlines() if line.strip())


def gpus_wanted(app: AppDef) -> int:
    """Returns how many GPUs all replicas of an app ask for."""
    return sum(role.num_replicas * max(role.resource.gpu, 0) for role in app.roles)


def divide(role_params: dict[str, list[ReplicaParam]], app: AppDef, devices: int) -> None:
    """Gives each replica the next of the devices, by :data:`ENV_CUDA_VISIBLE_DEVICES`.

    Asked for more than there are, it warns and sets nothing.

    Args:
        role_params: the replicas, changed in place
        app: says how many devices each asks for
        devices: how many there are
    """
    wanted = gpus_wanted(app)
    if wanted > devices:
        import logging

        logging.getLogger(__name__).warning(
            "app '%s' asks for %d GPUs, and this machine has %d: %s is not set, so every replica"
            " sees all of them",
            app.name,
            wanted,
            devices,
            ENV_CUDA_VISIBLE_DEVICES,
        )
        return
    first = 0
    for role in app.roles:
        each = max(role.resource.gpu, 0)
        for param in role_params[role.name] if each else ():
            ids = range(first, first + each)
            param.env[ENV_CUDA_VISIBLE_DEVICES] = ",".join(map(str, ids))
            first += each
