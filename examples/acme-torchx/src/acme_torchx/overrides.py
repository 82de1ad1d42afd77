"""Acme's versions of components that come with TorchX."""

import torchx_specs as specs
from torchx_components import utils


def python(
    *args: str,
    m: str | None = None,
    c: str | None = None,
    script: str | None = None,
    h: str = "acme.small",
    num_replicas: int = 1,
    env: dict[str, str] | None = None,
) -> specs.AppDef:
    """Run a Python module, script or command on one of Acme's machines.

    Args:
        args: Arguments of the program.
        m: Module to run.
        c: Python code to run.
        script: Path of the script to run.
        h: The machine of each replica.
        num_replicas: Number of replicas.
        env: Environment variables of the program.
    """
    variables = {"ACME_SITE": "berlin", **(env or {})}
    return utils.python(
        *args, m=m, c=c, script=script, image="", h=h, num_replicas=num_replicas, env=variables
    )
