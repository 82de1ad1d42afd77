"""The names that the measured scripts use: of our TorchX, or of the peer if ours is missing."""

from __future__ import annotations

try:
    import torchx_specs as specs
    from torchx_runner import get_runner
except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    from torchx import specs
    from torchx.runner import get_runner

__all__ = ["app", "get_runner", "specs"]


def app(roles: int, replicas: int, entrypoint: str, *args: str) -> specs.AppDef:
    """Return an app with ``roles`` equal roles, each with ``replicas`` replicas."""
    return specs.AppDef(
        name="bench",
        roles=[
            specs.Role(
                name=f"role{number}",
                image="",
                entrypoint=entrypoint,
                args=list(args),
                num_replicas=replicas,
                resource=specs.Resource(cpu=1, gpu=0, memMB=1),
            )
            for number in range(roles)
        ],
    )
