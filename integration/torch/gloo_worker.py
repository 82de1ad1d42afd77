"""The worker of test_distributed_gloo.py: ``gloo_worker.py FOLDER``.

torchrun or the test starts it in one process or several. Each process runs the same scenes and
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

SLOW = 0.3  # seconds that the first process takes; without a barrier, the others would overtake it


def node() -> int:
    return int(os.environ.get("GROUP_RANK", "0"))


def create_if_first(folder: Path, scene: str, first: bool) -> bool:
    """Create a file if this is the first process, and return whether the file exists."""
    file = folder / scene
    if first:
        time.sleep(SLOW)
        file.touch()
    return file.exists()


def run_scenes(folder: Path) -> dict[str, Any]:
    """Run the scenes in order, and return this process's observations by scene."""
    seen: dict[str, Any] = {}

    with dist.on_rank0_first():
        seen["job"] = create_if_first(folder, "job", dist.is_rank0())

    with dist.on_local_rank0_first():
        seen["each node"] = create_if_first(folder, f"each-node{node()}", dist.is_local_rank0())

    for again in range(3):
        with dist.on_local_rank0_first():
            seen[f"again{again}"] = create_if_first(
                folder, f"again{again}-node{node()}", dist.is_local_rank0()
            )

    try:
        with dist.on_rank0_first():
            if dist.is_rank0():
                raise RuntimeError("the first process fails")
        seen["after failure"] = "passed"
    except RuntimeError as error:
        seen["after failure"] = str(error)

    if node() == 0:  # a barrier of all nodes would never end here
        with dist.on_local_rank0_first():
            seen["one node only"] = create_if_first(folder, "lonely", dist.is_local_rank0())

    # If a process had skipped a barrier, this operation of the whole group would not match.
    total = torch.tensor(float(dist.rank()))
    torch.distributed.all_reduce(total)
    seen["sum of ranks"] = total.item()
    return seen


def main(folder: Path) -> None:
    before = {"rank": dist.rank(), "world_size": dist.world_size()}
    device = dist.init_pg("gloo" if "GROUP_RANK" in os.environ else "auto")
    seen = run_scenes(folder)
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
