"""Divides this machine's GPUs among replicas."""

from __future__ import annotations

from torchx_sched_local.request import ReplicaParam
from torchx_specs.model.app import AppDef

ENV_CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


def device_count() -> int:
    """Return how many GPUs ``nvidia-smi`` lists, or 0 if this command fails."""
    import subprocess

    try:
        out = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(1 for line in out.stdout.splitlines() if line.strip())


def requested_gpus(app: AppDef) -> int:
    """Return how many GPUs all replicas of an app request."""
    return sum(role.num_replicas * max(role.resource.gpu, 0) for role in app.roles)


def divide_gpus(role_params: dict[str, list[ReplicaParam]], app: AppDef, devices: int) -> None:
    """Assign GPUs to each replica with the environment variable ``CUDA_VISIBLE_DEVICES``.

    If the app requests more GPUs than this machine has, none are assigned, and a warning is logged.

    Args:
        role_params: The replicas, changed in place.
        app: The app; its roles have the number of GPUs for each replica.
        devices: How many GPUs this machine has.
    """
    requested = requested_gpus(app)
    if requested > devices:
        import logging

        logging.getLogger(__name__).warning(
            "app '%s' requests %d GPUs, but this machine has %d: %s is not set, so every replica"
            " sees all of them",
            app.name,
            requested,
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
