"""The documented ``torchx.*`` names of older TorchX releases.

A name is the same object as in the distribution that defines it, such as ``torchx_specs``. Names
that only older releases had, or that behave as in these releases, are defined here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx_specs.version import __version__ as __version__

if TYPE_CHECKING:
    from torchx.version import TORCHX_IMAGE as IMAGE

    __all__ = ["IMAGE", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "IMAGE":
        from torchx.version import TORCHX_IMAGE

        return TORCHX_IMAGE
    if not name.startswith("_"):
        import importlib

        try:
            return importlib.import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as e:
            if e.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
