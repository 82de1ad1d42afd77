"""Ranks of a training run that are stopped or killed: ``python ranks.py FOLDER OPTIONS``.

FOLDER is the resume folder; OPTIONS are those of :class:`Options`, as JSON. The program forks a
process for each rank of each attempt, as a scheduler would start them. If a rank fails, it kills
the others. It starts attempts until one succeeds, and prints their outcomes as a line of JSON.
:func:`run_ranks` starts the program.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from patience import wait_for
from torchx_resilience import Attempt, attempt

CONTEXT = multiprocessing.get_context("fork")
#: The functions of ``os`` that change files: before and after each call, a rank can be killed.
CHANGES = ("fsync", "mkdir", "open", "rename", "rmdir", "unlink")


@dataclass
class Options:
    """What happens to the ranks.

    Attributes:
        world: The number of ranks.
        end: The number of steps.
        every: Save a checkpoint after so many steps; 0 saves only at a stop.
        lockstep: Whether the ranks exchange a number in each step, so that none is ahead.
        signals: The ranks that get a signal in the first attempt, and its name, in this order. Each
            signal is sent when the previous one has been noted, and all ranks have passed
            ``after`` more steps or have stopped.
        after: See ``signals``.
        kills: For each attempt, the rank to kill, and at which point. Points count the changes of
            files by this rank; even ones are before a change, odd ones after it.
        all_points: Repeat the run in new folders, with one more kill in the attempt after those of
            ``kills``: of this rank, at each of its points in turn.
        work: How long a step takes at least, in seconds.
        gloo: Whether the ranks initialise a process group with gloo. They then get no number of the
            attempt.
    """

    world: int = 1
    end: int = 1_000_000_000
    every: int = 0
    lockstep: bool = False
    signals: list[tuple[int, str]] = field(default_factory=list)
    after: int = 2
    kills: list[tuple[int, int]] = field(default_factory=list)
    all_points: int | None = None
    work: float = 0.001
    gloo: bool = False


class Shared:
    """What the ranks of one attempt share with each other and with the parent process."""

    def __init__(self, world: int) -> None:
        self.steps = CONTEXT.Array("q", [-1] * world, lock=False)
        self.stops = CONTEXT.Array("q", [-1] * world, lock=False)
        self.noted = CONTEXT.Array("q", [0] * world, lock=False)
        self.weights = CONTEXT.Array("d", [0.0] * world, lock=False)
        self.points = CONTEXT.Array("q", [0] * world, lock=False)
        self.barrier = CONTEXT.Barrier(world)
        with socket.socket() as probe:
            probe.bind(("localhost", 0))
            self.port = int(probe.getsockname()[1])


def kill_at(point: int, rank: int, shared: Shared) -> None:
    """Let this process kill itself at a point."""

    def pass_point() -> None:
        if shared.points[rank] == point:
            os.kill(os.getpid(), signal.SIGKILL)
        shared.points[rank] += 1

    def watched(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            pass_point()
            result = function(*args, **kwargs)
            pass_point()
            return result

        return call

    for name in CHANGES:
        setattr(os, name, watched(getattr(os, name)))


def save(folder: Path, rank: int, weight: float) -> None:
    """Save the weight of a rank, by two writes; a rank can be killed between them."""
    text = weight.hex()
    with open(folder / f"rank{rank}", "w") as file:
        file.write(text[:4])
        file.flush()
        os.fsync(file.fileno())
        file.write(text[4:])


def exchange(rank: int, weight: float, shared: Shared, distributed: Any) -> float:
    """Return the sum of the weights of all ranks."""
    if distributed:
        import torch

        tensor = torch.tensor(weight, dtype=torch.float64)
        distributed.all_reduce(tensor)
        return float(tensor.item())
    shared.weights[rank] = weight
    shared.barrier.wait()
    total: float = sum(shared.weights)
    shared.barrier.wait()
    return total


def train(run: Attempt, options: Options, shared: Shared, distributed: Any) -> None:
    rank, weight = run.rank, 1.0 / (run.rank + 1)
    if run.resume_path:
        weight = float.fromhex((run.resume_path / f"rank{rank}").read_text())
    for step in run.steps(0, options.end):
        # The work of a step. Without lockstep, the ranks have different speeds.
        time.sleep(options.work * (1 if options.lockstep else rank + 1))
        total = weight
        if options.lockstep:
            total = exchange(rank, weight, shared, distributed)
        weight = weight * 0.9 + total * 0.01 + step * 0.001
        shared.steps[rank] = step
        stop = run.should_stop(step)
        if stop or (options.every and step % options.every == options.every - 1):
            save(run.checkpoint_path(step), rank, weight)
            run.commit(step)
        if stop:
            shared.stops[rank] = step
            run.requeue()
    shared.weights[rank] = weight


def main(rank: int, number: int, options: Options, shared: Shared) -> None:
    """Run one rank of an attempt."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.world))
    distributed: Any = None
    if options.gloo:
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(shared.port))
        distributed = importlib.import_module("torch.distributed")
        importlib.import_module("torch").set_num_threads(1)
        distributed.init_process_group("gloo")
    else:
        os.environ["TORCHX_ATTEMPT"] = str(number)

    def note(number: int, frame: Any) -> None:
        shared.noted[rank] = 1

    signal.signal(signal.SIGTERM, note)
    kill_rank, point = options.kills[number] if number < len(options.kills) else (-1, 0)
    if rank == kill_rank:
        kill_at(point, rank, shared)
    train(attempt(timeout=300), options, shared, distributed)


def send_signals(options: Options, shared: Shared, processes: list[Any]) -> None:
    for rank, name in options.signals:
        before = list(shared.steps)

        def passed(before: list[int] = before) -> bool:
            return all(
                now >= old + options.after or stop >= 0 or process.exitcode is not None
                for now, old, stop, process in zip(
                    shared.steps, before, shared.stops, processes, strict=True
                )
            )

        wait_for(passed)
        os.kill(processes[rank].pid, getattr(signal, name))
        if name == "SIGTERM":
            process = processes[rank]

            def noted(rank: int = rank, process: Any = process) -> bool:
                return bool(shared.noted[rank]) or process.exitcode is not None

            wait_for(noted)


def run_attempt(number: int, options: Options, folder: Path) -> dict[str, Any]:
    """Run an attempt, and return its outcome."""
    shared = Shared(options.world)
    processes = [
        CONTEXT.Process(target=main, args=(rank, number, options, shared))
        for rank in range(options.world)
    ]
    for process in processes:
        process.start()
    if number == 0:
        send_signals(options, shared, processes)
    running: dict[Any, Any] = {process.sentinel: process for process in processes}
    while running:
        for sentinel in connection.wait(list(running)):
            running.pop(sentinel).join()
        if any(process.exitcode not in (None, 0, 75) for process in processes):
            for process in running.values():
                process.kill()
    return {
        "codes": [process.exitcode for process in processes],
        "stops": list(shared.stops),
        "weights": [weight.hex() for weight in shared.weights],
        "committed": sorted(int(path.name[5:]) for path in folder.glob("step-*")),
    }


def run(folder: Path, options: Options) -> list[dict[str, Any]]:
    """Run attempts until one succeeds, print their outcomes and return them."""
    os.environ["TORCHX_RESUME_DIR"] = str(folder)
    outcomes: list[dict[str, Any]] = []
    while not outcomes or outcomes[-1]["codes"] != [0] * options.world:
        outcomes.append(run_attempt(len(outcomes), options, folder))
        if options.signals and not options.every:
            break
    print(json.dumps(outcomes), flush=True)
    return outcomes


def run_all_points(folder: Path, options: Options, rank: int) -> None:
    """Run attempts with a kill of a rank, for each point of the rank."""
    index, point, killed = len(options.kills), 0, True
    while killed:
        chosen = replace(options, kills=[*options.kills, (rank, point)])
        outcomes = run(folder / str(point), chosen)
        killed = outcomes[index]["codes"][rank] == -signal.SIGKILL
        point += 1


def run_ranks(folder: Path, **options: Any) -> list[list[dict[str, Any]]]:
    """Run this program, and return the outcomes of the attempts of each run."""
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
    done = subprocess.run(
        [sys.executable, __file__, str(folder), json.dumps(options)],
        env={k: v for k, v in os.environ.items() if k not in names and "TORCHX" not in k},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    chosen = Options(**json.loads(sys.argv[2]))
    if chosen.all_points is None:
        run(Path(sys.argv[1]), chosen)
    else:
        run_all_points(Path(sys.argv[1]), chosen, chosen.all_points)
