"""What each process of test_distributed_gloo.py does: scenes in which it writes down what it sees.

Not a test itself; run by torchrun, by hand, or alone: ``gloo_worker.py FOLDER``. Every process
writes ``FOLDER/<rank>.json``.
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

SLOW = 0.3  # seconds that the first one takes, so that the others would overtake it


def node() -> int:
    return int(os.environ.get("GROUP_RANK", "0"))


def leaves_first(folder: Path, scene: str, first: bool) -> bool:
    """The body of a scene: the first leaves a file behind, and everybody looks for it."""
    file = folder / scene
    if first:
        time.sleep(SLOW)
        file.touch()
    return file.exists()


def scenes(folder: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}

    with dist.on_rank0_first():
        seen["job"] = leaves_first(folder, "job", dist.is_rank0())

    with dist.on_local_rank0_first():
        seen["each node"] = leaves_first(folder, f"each-node{node()}", dist.is_local_rank0())

    for again in range(3):
        with dist.on_local_rank0_first():
            seen[f"again{again}"] = leaves_first(
                folder, f"again{again}-node{node()}", dist.is_local_rank0()
            )

    try:
        with dist.on_rank0_first():
            if dist.is_rank0():
                raise RuntimeError("the first one fails")
        seen["after failure"] = "through"
    except RuntimeError as error:
        seen["after failure"] = str(error)

    if node() == 0:  # the other node never comes here, as with `if is_node0: with ...`
        with dist.on_local_rank0_first():
            seen["one node only"] = leaves_first(folder, "lonely", dist.is_local_rank0())

    # A barrier in disguise must not be left open: the group still works as a whole.
    total = torch.tensor(float(dist.rank()))
    torch.distributed.all_reduce(total)
    seen["sum of ranks"] = total.item()
    return seen


def main(folder: Path) -> None:
    before = {"rank": dist.rank(), "world_size": dist.world_size()}
    device = dist.init_pg("gloo" if "GROUP_RANK" in os.environ else "auto")
    seen = scenes(folder)
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
