"""A tracker that writes small files to a local disk or any fsspec file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_tracker_fsspec.tracker import FsspecTracker as FsspecTracker
    from torchx_tracker_fsspec.tracker import create as create

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"torchx_tracker_fsspec.tracker": ("FsspecTracker", "create")},
    submodules=("config", "local", "names", "remote", "tracker"),
)
