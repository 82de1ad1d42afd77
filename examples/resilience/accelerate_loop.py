"""Trains with Hugging Face accelerate, and goes on after an interruption.

torchx run --resume_dir runs/a -j 1x2 examples/resilience/accelerate_loop.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from problem import BATCH, Model, Points, digest, parse_args

from torchx_resilience import attempt


def main() -> None:
    args = parse_args()
    accelerator = Accelerator(cpu=True)
    set_seed(0, device_specific=True)
    data = Points(args.steps * BATCH * accelerator.num_processes, args.pause)
    model = Model()
    model, optimizer, loader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        # with a generator of its own, it leaves the random numbers of the model alone
        torch.utils.data.DataLoader(data, BATCH, generator=torch.Generator()),
    )
    run = attempt("checkpoints")
    steps = run.steps(0, args.steps)
    if run.resume_path:
        accelerator.load_state(str(run.resume_path))
        loader = accelerator.skip_first_batches(loader, run.resume_step + 1)
    for step, batch in zip(steps, loader, strict=False):
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        optimizer.step()
        stop = run.should_stop(step)
        if stop or step % args.every == args.every - 1:
            accelerator.save_state(str(run.checkpoint_path(step)))
            run.commit(step)
        if stop:
            run.requeue()
    if accelerator.is_main_process:
        print(f"attempt {run.number}: weights {digest(accelerator.unwrap_model(model))}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
