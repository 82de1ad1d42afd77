"""Acme's machines, as named resources."""

from torchx_specs import Resource


def small() -> Resource:
    """Return a quarter of a CPU machine."""
    return Resource(cpu=1, gpu=0, memMB=2 * 1024)


def gpu() -> Resource:
    """Return a GPU machine."""
    return Resource(cpu=16, gpu=2, memMB=122_000)
