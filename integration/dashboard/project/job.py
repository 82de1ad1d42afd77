"""The component of the test jobs."""

from __future__ import annotations

import os
import sys

from torchx_specs import AppDef, Resource, Role


def train(
    name: str = "train",
    lr: float = 0.1,
    width: int = 64,
    steps: int = 0,
    flags: str = "",
    replicas: int = 1,
    retries: int = 0,
) -> AppDef:
    """Return a job that runs ``train.py``.

    Args:
        name: Name of the job.
        lr: Learning rate.
        width: Width of the model.
        steps: Number of recorded steps.
        flags: Further arguments, separated by blanks.
        replicas: Number of replicas.
        retries: How often a failed replica starts again.
    """
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train.py")
    arguments = ["--lr", str(lr), "--width", str(width), "--steps", str(steps), *flags.split()]
    role = Role(
        "trainer",
        image="",
        entrypoint=sys.executable,
        args=[program, *arguments],
        env={"ARTIFACTS": os.environ.get("ARTIFACTS", "."), "API_TOKEN": "s3cret-value"},
        num_replicas=replicas,
        max_retries=retries,
        resource=Resource(cpu=1, gpu=0, memMB=64),
    )
    return AppDef(name, [role])
