"""The model and the data of the examples in this folder; the same on each rank and in each run."""

from __future__ import annotations

import argparse
import hashlib
import time

import torch
from torch import nn

BATCH = 16


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes")
    return parser.parse_args()


class Model(nn.Module):
    """A small model with dropout, so that its weights depend on the random numbers of each step."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.layers(x), labels)}


class Points(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Points and their labels.

    Args:
        size: The number of points.
        pause: How long it takes to read a batch, in seconds.
        done: The number of points that earlier attempts have read, which come last.
    """

    def __init__(self, size: int, pause: float = 0.0, done: int = 0) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.rand(size, 2, generator=generator) * 4 - 2
        self.labels = torch.sin(self.x[:, :1]) * self.x[:, 1:]
        self.pause = pause
        self.done = done

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(self.pause / BATCH)
        index = (index + self.done) % len(self)
        return {"x": self.x[index], "labels": self.labels[index]}

    def batch(self, step: int, rank: int, world: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch of a rank for a step."""
        time.sleep(self.pause)
        first = (step * world + rank) * BATCH % len(self)
        return self.x[first : first + BATCH], self.labels[first : first + BATCH]


def digest(model: nn.Module) -> str:
    """Return a hash of the weights, which shows a change of their last bit."""
    found = hashlib.sha256()
    for value in model.state_dict().values():
        found.update(value.detach().numpy().tobytes())
    return found.hexdigest()
