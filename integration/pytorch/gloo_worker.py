"""The program of test_distributed_gloo.py: it records how ``torchx_apps.distributed`` behaves.

Start it with torchrun, with another launcher, or alone: ``gloo_worker.py FOLDER``. Each process
writes its observations to ``FOLDER/<rank>.json``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from torchx_apps import distributed as dist

SLOW = 0.3  # How long the first process delays its work, in seconds.


def node() -> int:
    return int(os.environ.get("GROUP_RANK", "0"))


def file_exists(folder: Path, name: str, first: bool) -> bool:
    """Return True if a file exists; the process that goes first creates it after a delay."""
    file = folder / name
    if first:
        time.sleep(SLOW)
        file.touch()
    return file.exists()


def observe(folder: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    with dist.on_rank0_first():
        seen["job"] = file_exists(folder, "job", dist.is_rank0())

    with dist.on_local_rank0_first():
        seen["each node"] = file_exists(folder, f"each-node{node()}", dist.is_local_rank0())

    for again in range(3):
        with dist.on_local_rank0_first():
            seen[f"again{again}"] = file_exists(
                folder, f"again{again}-node{node()}", dist.is_local_rank0()
            )

    try:
        with dist.on_rank0_first():
            if dist.is_rank0():
                raise RuntimeError("the first process fails")
        seen["after failure"] = "through"
    except RuntimeError as error:
        seen["after failure"] = str(error)

    if node() == 0:  # The other nodes do not enter the context.
        with dist.on_local_rank0_first():
            seen["one node only"] = file_exists(folder, "lonely", dist.is_local_rank0())

    # No process may still wait at a barrier: a collective of the whole group must work.
    total = torch.tensor(float(dist.rank()))
    torch.distributed.all_reduce(total)
    seen["sum of ranks"] = total.item()
    return seen


def main(folder: Path) -> None:
    before = {"rank": dist.rank(), "world_size": dist.world_size()}
    device = dist.init_pg("gloo" if "GROUP_RANK" in os.environ else "auto")
    seen = observe(folder)
    seen |= {
        "before": before,
        "rank": dist.rank(),
        "world_size": dist.world_size(),
        "local_rank": dist.local_rank(),
        "is_rank0": dist.is_rank0(),
        "is_local_rank0": dist.is_local_rank0(),
        "node": node(),
        "device": str(device),
        "local_device": str(dist.local_device()),
        "backend": torch.distributed.get_backend(),
        "master": os.environ.get("MASTER_ADDR"),
    }
    torch.distributed.destroy_process_group()
    (folder / f"{seen['rank']}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
