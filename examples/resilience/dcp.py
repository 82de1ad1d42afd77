"""Trains with torch.distributed.checkpoint, and goes on after an interruption.

torchx run --resume_dir runs/a -j 1x2 examples/resilience/dcp.py
"""

from __future__ import annotations

import torch
import torch.distributed.checkpoint as dcp
from problem import BATCH, Model, Points, digest, parse_args
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from torchx_resilience import attempt


def main() -> None:
    args = parse_args()
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(rank)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (world,))
    model = fully_shard(Model(), mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Points(1000 * BATCH, args.pause)

    def state() -> dict[str, object]:
        weights, optimizer_state = get_state_dict(model, optimizer)
        random = {f"random-{rank}": torch.get_rng_state()}
        return {"model": weights, "optimizer": optimizer_state, **random}

    run = attempt("checkpoints")
    if run.resume_path:
        loaded = state()
        dcp.load(loaded, checkpoint_id=run.resume_path)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=loaded["model"],
            optim_state_dict=loaded["optimizer"],
        )
        torch.set_rng_state(loaded[f"random-{rank}"])
    for step in run.steps(0, args.steps):
        x, labels = data.batch(step, rank, world)
        optimizer.zero_grad()
        model(x, labels)["loss"].backward()
        optimizer.step()
        stop = run.should_stop(step)
        if stop or step % args.every == args.every - 1:
            dcp.save(state(), checkpoint_id=run.checkpoint_path(step))
            run.commit(step)
        if stop:
            run.requeue()
    weights = {
        name: value.full_tensor() if isinstance(value, DTensor) else value
        for name, value in model.state_dict().items()
    }
    if rank == 0:
        whole = Model()
        whole.load_state_dict(weights)
        print(f"attempt {run.number}: weights {digest(whole)}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
