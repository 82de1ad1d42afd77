"""Apps for the tests of Grid Engine."""

from __future__ import annotations

from torchx_specs import AppDef, Resource, Role


def role(line: str, *, name: str = "main", count: int = 1, cpu: int = 1, gpu: int = 0) -> Role:
    """Return a role that runs a line of bash."""
    resource = Resource(cpu=cpu, gpu=gpu, memMB=50)
    return Role(
        name,
        image="",
        entrypoint="bash",
        args=["-c", line],
        num_replicas=count,
        resource=resource,
    )


def app(*roles: Role) -> AppDef:
    """Return an app of these roles."""
    return AppDef("app", list(roles))
