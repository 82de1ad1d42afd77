"""Trains with Lightning, and goes on after an interruption.

torchx run --resume_dir runs/a -j 1x2 examples/resilience/lightning_trainer.py
"""

from __future__ import annotations

import os
import signal
from typing import Any

import lightning
import torch
from lightning.fabric.plugins.environments import TorchElasticEnvironment
from problem import BATCH, Model, Points, digest, parse_args

from torchx_resilience import Attempt, attempt


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def training_step(self, batch: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        return self.model(**batch)["loss"]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


class Resilience(lightning.Callback):
    """Commits a checkpoint every few steps, and ends the attempt after an agreed stop."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.run: Attempt | None = None
        self.on_sigterm: Any = None

    def on_train_start(self, trainer: lightning.Trainer, module: Any) -> None:
        # Lightning's own handler waits for all ranks, and they get the signal at different times.
        signal.signal(signal.SIGTERM, self.on_sigterm)
        if self.run.resume_path:
            path = self.run.resume_path / f"random-{trainer.global_rank}.pt"
            torch.set_rng_state(torch.load(path))

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Any, *_: Any) -> None:
        step = trainer.global_step - 1
        stop = self.run.should_stop(step)
        if stop or step % self.every == self.every - 1:
            path = self.run.checkpoint_path(step)
            torch.save(torch.get_rng_state(), path / f"random-{trainer.global_rank}.pt")
            trainer.save_checkpoint(path / "model.ckpt")
            self.run.commit(step)
        if stop:
            self.run.requeue()


def main() -> None:
    args = parse_args()
    torch.distributed.init_process_group("gloo")  # before attempt(), which uses it
    resilience = Resilience(args.every)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        strategy="ddp",
        # torchrun starts the ranks, so that Lightning does not requeue jobs on Slurm itself
        plugins=[TorchElasticEnvironment()],
        max_steps=args.steps,
        callbacks=[resilience],
        enable_checkpointing=False,
        use_distributed_sampler=False,  # it shuffles
        enable_progress_bar=False,
        logger=False,
    )
    run = resilience.run = attempt("checkpoints")
    resilience.on_sigterm = signal.getsignal(signal.SIGTERM)
    batch = BATCH * trainer.world_size
    # Lightning starts with the first batch again.
    done = 0 if run.resume_step is None else run.resume_step + 1
    data = Points(args.steps * batch, args.pause, done * batch)
    sampler: Any = torch.utils.data.DistributedSampler(data, shuffle=False)
    module = Module()
    trainer.fit(
        module,
        # with a generator of its own, it leaves the random numbers of the model alone
        torch.utils.data.DataLoader(data, BATCH, sampler=sampler, generator=torch.Generator()),
        ckpt_path=run.resume_path and str(run.resume_path / "model.ckpt"),
    )
    if trainer.is_global_zero:
        print(f"attempt {run.number}: weights {digest(module.model)}")


if __name__ == "__main__":
    main()
