"""Checks of this machine for local apps, for ``torchx doctor``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from torchx_kit.checks import error, ok, query_seconds, warning
from torchx_kit.home import home_path

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult

_MIN_FREE_GB = 1.0


def check_folder(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield whether the folder of logs and records is writable, and how much space is free.

    Args:
        cfg: The scheduler's options.
    """
    given = cfg.get("log_dir")
    folder = os.path.abspath(str(given)) if given else home_path("local")
    existing = folder
    while not os.path.isdir(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)
    try:
        # os.access() can be wrong, for example on a network file system.
        with tempfile.TemporaryFile(dir=existing):
            pass
        free = shutil.disk_usage(existing).free / 1e9
    except OSError as e:
        option = "the option log_dir" if given else "TORCHX_HOME"
        yield error(
            f"{existing} is not writable: {e.strerror or e}",
            f"set {option} to a folder that you can write to",
        )
        return
    if free < _MIN_FREE_GB:
        yield warning(f"{folder} has {free:.1f} GB free", "run 'torchx workspace prune'")
    else:
        yield ok(f"logs and records in {folder}, which has {free:.1f} GB free")


def check_gpus(cfg: Mapping[str, CfgVal], /) -> Iterator[CheckResult]:
    """Yield how many GPUs this machine has.

    Args:
        cfg: The scheduler's options; ignored.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        yield ok("no GPUs (nvidia-smi is not on PATH)")
        return
    seconds = query_seconds()
    try:
        done = subprocess.run(
            [path, "-L"], capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        yield warning(
            f"nvidia-smi did not answer within {seconds:.3g} s",
            "run 'nvidia-smi'; a GPU or its driver may hang",
        )
        return
    except OSError as e:
        yield warning(
            f"{path} cannot be run: {e.strerror or e}",
            "install nvidia-smi for this machine's architecture, or remove the file from PATH",
        )
        return
    if done.returncode:
        output = done.stdout.strip() or done.stderr.strip()
        yield warning(f"nvidia-smi failed: {output}", "install a driver that fits the kernel")
        return
    names = [line.partition(" (UUID")[0] for line in done.stdout.splitlines() if line.strip()]
    yield ok(f"{len(names)} GPUs: {', '.join(names)}" if names else "no GPUs")
