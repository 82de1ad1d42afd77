"""Trains with DistributedDataParallel, and goes on after an interruption.

torchx run --resume_dir runs/a -j 1x2 examples/resilience/ddp.py
"""

from __future__ import annotations

import torch
from problem import BATCH, Model, Points, digest, parse_args
from torch.nn.parallel import DistributedDataParallel

from torchx_resilience import attempt


def main() -> None:
    args = parse_args()
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Points(1000 * BATCH, args.pause)
    run = attempt("checkpoints")
    if run.resume_path:
        state = torch.load(run.resume_path / "model.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(torch.load(run.resume_path / f"random-{rank}.pt"))
    for step in run.steps(0, args.steps):
        x, labels = data.batch(step, rank, world)
        optimizer.zero_grad()
        model(x, labels)["loss"].backward()
        optimizer.step()
        stop = run.should_stop(step)
        if stop or step % args.every == args.every - 1:
            path = run.checkpoint_path(step)
            torch.save(torch.get_rng_state(), path / f"random-{rank}.pt")
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, path / "model.pt")
            run.commit(step)
        if stop:
            run.requeue()
    if rank == 0:
        print(f"attempt {run.number}: weights {digest(model)}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
