"""Trains with the Trainer of Hugging Face transformers, and goes on after an interruption.

torchx run --resume_dir runs/a -j 1x2 examples/resilience/hugging_face_trainer.py
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from problem import BATCH, Model, Points, digest, parse_args
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from torchx_resilience import Attempt, attempt


class Resilience(TrainerCallback):
    """Commits each checkpoint of the Trainer, and ends the attempt after an agreed stop."""

    def __init__(self, run: Attempt) -> None:
        self.run = run
        self.is_stopped = False

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self.run.should_stop(state.global_step - 1):
            self.is_stopped = True
            control.should_save = True

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        step = state.global_step - 1
        torch.distributed.barrier()  # each rank has saved its random numbers
        path = self.run.checkpoint_path(step)
        if state.is_world_process_zero:
            os.rename(Path(args.output_dir) / f"checkpoint-{step + 1}", path / "trainer")
        self.run.commit(step)
        if self.is_stopped:
            self.run.requeue()


def main() -> None:
    args = parse_args()
    options = TrainingArguments(
        output_dir=str(Path(os.environ.get("TORCHX_RESUME_DIR", "checkpoints")) / "trainer"),
        max_steps=args.steps,
        save_steps=args.every,
        per_device_train_batch_size=BATCH,
        learning_rate=0.05,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    run = attempt("checkpoints")
    data = Points(args.steps * BATCH * options.world_size, args.pause)
    trainer = Trainer(Model(), options, train_dataset=data, callbacks=[Resilience(run)])
    trainer.train(resume_from_checkpoint=run.resume_path and str(run.resume_path / "trainer"))
    if options.process_index == 0:
        model = trainer.accelerator.unwrap_model(trainer.model)
        print(f"attempt {run.number}: weights {digest(model)}")


if __name__ == "__main__":
    main()
