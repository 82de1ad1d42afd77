"""The scheduler's options."""

from __future__ import annotations

from dataclasses import dataclass

from torchx_specs.options.structured import StructuredOpts


@dataclass
class LocalOpts(StructuredOpts):
    """Options of ``local_cwd``."""

    log_dir: str | None = None
    """folder for logs, one sub-folder per session and app; the default is $TORCHX_HOME/local"""

    prepend_cwd: bool = False
    """puts the working directory before the rest of the PATH that the app asks for, not after it"""

    auto_set_cuda_visible_devices: bool = False
    """divides this machine's GPUs over the replicas of roles that ask for GPUs"""

    detach: bool = False
    """runs the app in the background: it goes on when the program that started it ends"""

    fail_together: bool = False
    """ends all replicas as soon as one of them has failed for good"""
