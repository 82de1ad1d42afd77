"""A job with torchx_resilience: a deterministic loop, which a fault disturbs in its first attempt.

Arguments: the folder for results, and the fault. Each rank writes its final weights, and a line for
each attempt with the steps that it has done. From the step FAULT_AT on, the first attempt waits for
the file ``go`` in the folder, which the test writes after it has caused a fault from outside. With
the fault ``limit``, the first attempt takes more than a minute.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from torchx_resilience import attempt

END, EVERY, FAULT_AT = 120, 20, 50


def train(weights: list[float], step: int) -> list[float]:
    """Return the weights after a step; the order of operations matters to their last bits."""
    return [0.9 * weight + (step % 7) / (k + 3) for k, weight in enumerate(weights)]


def main(folder: Path, fault: str) -> None:
    """Train; see the module."""
    run = attempt()
    name = f"{run.rank}.json"
    weights = [float(run.rank), 0.1, 0.2]
    if run.resume_path:
        weights = json.loads((run.resume_path / name).read_text())
    steps = folder / f"steps-{run.rank}"
    for step in run.steps(0, END):
        with steps.open("a") as file:
            file.write(f"{run.number} {run.reason or 'none'} {step}\n")
        weights = train(weights, step)
        is_disturbed = fault != "none" and run.number == 0 and step >= FAULT_AT
        if is_disturbed and step == FAULT_AT:
            disturb(folder, fault, run.rank)
        if is_disturbed:
            time.sleep(1 if fault == "limit" else 0.1)
        stop = run.should_stop(step) or (is_disturbed and fault == "request")
        if stop or step % EVERY == EVERY - 1 or step == END - 1:
            (run.checkpoint_path(step) / name).write_text(json.dumps(weights))
            run.commit(step)
        if stop:
            run.requeue()
    (folder / f"weights-{run.rank}").write_text(json.dumps([weight.hex() for weight in weights]))


def disturb(folder: Path, fault: str, rank: int) -> None:
    """Cause the fault, or wait until the test has caused it."""
    if fault == "failure" and rank == 0:
        sys.exit(3)
    if fault == "kill" and rank == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "memory" and rank == 0:
        held = [b"x" * (1 << 20) for _ in range(1 << 20)]  # more than a container may use
        sys.exit(f"{len(held)} MB")
    if fault == "outside":
        (folder / f"pid-{rank}.new").write_text(str(os.getpid()))
        (folder / f"pid-{rank}.new").rename(folder / f"pid-{rank}")
        while not (folder / "go").exists():
            time.sleep(0.01)


def check(folder: Path, world: int) -> list[str]:
    """Check the results of a run, and return the reason of each attempt's start, as rank 0 saw it.

    The weights equal those of an undisturbed run bit for bit, and each step between two attempts is
    done once or, if it was not committed, again.
    """
    for rank in range(world):
        weights = [float(rank), 0.1, 0.2]
        for step in range(END):
            weights = train(weights, step)
        found = json.loads((folder / f"weights-{rank}").read_text())
        assert found == [weight.hex() for weight in weights]
        lines = [line.split() for line in (folder / f"steps-{rank}").read_text().splitlines()]
        assert sorted({int(step) for _, _, step in lines}) == list(range(END))
        firsts = {number: int(step) for number, _, step in reversed(lines)}
        lasts = {number: int(step) for number, _, step in lines}
        for number, last in lasts.items():
            following = firsts.get(str(int(number) + 1))
            assert following is None or following <= last + 1
        # nothing is done twice in an attempt
        assert len(lines) == len({(number, step) for number, _, step in lines})
    reasons = [line.split()[:2] for line in (folder / "steps-0").read_text().splitlines()]
    return [reason for _, reason in dict.fromkeys(map(tuple, reasons))]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
