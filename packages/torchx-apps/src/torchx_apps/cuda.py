"""Detects usable GPUs."""

from __future__ import annotations


def has_cuda_devices() -> bool:
    """Return whether torch is installed, was built with CUDA and finds at least one device."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return False
    return bool(torch.cuda.is_available() and torch.cuda.device_count() > 0)
