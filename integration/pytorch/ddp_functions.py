"""Functions that the processes of test_distributed_case.py import and run."""

from __future__ import annotations

import os

import torch


def rank_and_sum(added: int) -> tuple[int, float]:
    torch.distributed.init_process_group("gloo")
    tensor = torch.full((1,), float(added))
    torch.distributed.all_reduce(tensor)
    torch.distributed.destroy_process_group()
    return int(os.environ["RANK"]), tensor.item()


def fail() -> None:
    raise ValueError("no")
