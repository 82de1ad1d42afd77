"""A tracker that records runs with Weights & Biases (W&B)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_tracker_wandb.tracker import WandbTracker as WandbTracker
    from torchx_tracker_wandb.tracker import create_tracker as create_tracker

__getattr__, __dir__, __all__ = attach(
    __name__,
    {"torchx_tracker_wandb.tracker": ("WandbTracker", "create_tracker")},
    submodules=("config", "encoding", "journal", "tracker"),
)
