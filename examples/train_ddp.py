"""Trains a small model with data parallelism, as an example for dist.ddp.

    torchx run -s local_cwd dist.ddp -j 1x2 --script examples/train_ddp.py
    torchx run -s local_cwd dist.ddp -j 2x2 --script examples/train_ddp.py -- --epochs 20
    python examples/train_ddp.py                                   # one process, no launcher

The model learns y = sin(a) * b from random points, different in each process. Rank 0 prints the
loss of each epoch, averaged over all processes. The exit code is 1 if the loss does not fall to
half. Requires torch and torchx-apps. Uses GPUs with nccl if available, otherwise the CPU with gloo.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchx_apps import distributed as dist


def parse_args(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batches", type=int, default=50, help="batches in an epoch")
    parser.add_argument("--batch_size", type=int, default=64, help="points in a batch, per process")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    if args.epochs < 2:
        parser.error("--epochs must be at least 2, to see the loss fall")
    return args


def draw(size: int, points: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch of random points and the values to learn."""
    x = torch.rand(size, 2, generator=points) * 4 - 2
    return x, torch.sin(x[:, :1]) * x[:, 1:]


def mean_over_processes(value: torch.Tensor) -> float:
    total = value.detach().clone()
    torch.distributed.all_reduce(total)
    return float(total.item()) / dist.world_size()


def train(args: argparse.Namespace, device: torch.device) -> list[float]:
    """Train the model; return the loss of each epoch, which is the same in all processes."""
    torch.manual_seed(args.seed)  # the same model in all processes
    points = torch.Generator().manual_seed(args.seed + 1 + dist.rank())  # different points in each
    layers = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
    model = nn.Sequential(layers, nn.Linear(32, 1)).to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=args.lr, momentum=0.9)
    losses = []
    for epoch in range(args.epochs):
        sum_of_losses = torch.zeros((), device=device)
        for _ in range(args.batches):
            x, y = draw(args.batch_size, points)
            loss = nn.functional.mse_loss(parallel(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sum_of_losses += loss.detach()
        losses.append(mean_over_processes(sum_of_losses / args.batches))
        if dist.is_rank0():
            print(f"epoch {epoch + 1}/{args.epochs}: loss {losses[-1]:.5f}", flush=True)
    return losses


def main(argv: list[str]) -> int:
    args = parse_args(argv)
    torch.set_num_threads(1)  # several processes share the CPUs
    device = dist.init_pg()
    try:
        if dist.is_rank0():
            print(f"training with {dist.world_size()} processes on {device.type}", flush=True)
        losses = train(args, device)
    finally:
        torch.distributed.destroy_process_group()
    if not losses[-1] < losses[0] / 2:
        print(f"the loss did not fall: {losses[0]:.5f} -> {losses[-1]:.5f}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
