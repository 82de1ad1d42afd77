"""What a user does, in one session of a shell on a terminal, with documented commands.

Each task is typed once, as the row of its name in ``docs/comparison.md`` has it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """
import argparse, os, time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--until", default="")
args = parser.parse_args()
print("A is", os.environ.get("A"), "and the learning rate is", args.lr, flush=True)
if os.environ.get("TORCHX_TRACKERS"):
    from torchx_tracker import app_run_from_env
    app_run_from_env().add_metadata(loss=round(1 - args.lr, 3))
while args.until and not os.path.exists(args.until):
    time.sleep(0.05)
"""
EVALUATE = "print('evaluated')\n"


class Task(NamedTuple):
    """A task.

    Args:
        name: The name of its row in the documentation; empty for a step between two tasks.
        shown: What its command shows.
        command: The command of a step, or of a row whose command depends on the user's job.
    """

    name: str
    shown: str
    command: str = ""


TASKS = (
    Task("my script on this machine", "python/0 A is None and the learning rate is 0.1"),
    Task("its arguments", "python/0 A is None and the learning rate is 0.3"),
    Task("again with another value", "the learning rate is 0.5"),
    Task("what differs between two jobs", "--lr"),
    Task("a module", "the learning rate is 0.3"),
    Task("an environment variable", "A is 1 and"),
    Task("retry a failed job", "job finished: SUCCEEDED"),
    Task("see what would be submitted", "#SBATCH"),
    Task("defaults of a project", "local_cwd"),
    Task("state", "SUCCEEDED"),
    Task("follow the logs", "the learning rate is 0.1"),
    Task("all my jobs", "local_cwd"),
    Task("earlier jobs, with the commands", "torchx run --env A=1 train.py"),
    Task("wait in a script", "SUCCEEDED"),
    Task("JSON for programs", '"state": "SUCCEEDED"'),
    Task("which was best", "loss"),
    Task("", "loss", "torchx tracker list metadata @2"),
    Task("after another job", "evaluated"),
    Task("a sweep", "sweep://torchx/"),
    Task("", "SUCCEEDED", "torchx wait @1"),
    Task("the sweep's table", "0.7"),
    Task("the best one again", "the learning rate is 0.3"),
    Task("at most 4 at a time", "sweep://torchx/"),
    Task("", "SUCCEEDED", "torchx wait @1"),
    Task("", "train-a", "torchx run --detach --name train-a train.py --until never"),
    Task("", "inside", "torchx exec @1 -- echo inside"),
    Task("", "copied", "torchx cp @1:$PWD/.torchxconfig copied && ls copied"),
    Task("stop it", "@1 is local_cwd://torchx/train-a"),
    Task("", "CANCELLED", "torchx wait @1 || true"),
    Task("", "train-b", "torchx run --detach --name train-b train.py --until never"),
    Task("stop all that match", "cancel local_cwd://torchx/train-b"),
    Task("", "CANCELLED", "torchx wait @1 || true"),
    Task("is my installation right", "local_cwd"),
)


def documented() -> dict[str, str]:
    """Return the command of each task in the documentation."""
    text = (ROOT / "docs" / "comparison.md").read_text("utf-8")
    return dict(re.findall(r"^\| ([^|*]+) \| `(torchx [^`]+)`", text, re.M))


@pytest.fixture
def shell(environment: dict[str, str], tmp_path: Path) -> Any:
    """Return a shell on a terminal, in a folder with scripts."""
    folder = tmp_path / "project"
    (folder / "pkg").mkdir(parents=True)
    for name, text in (
        ("train.py", TRAIN),
        ("evaluate.py", EVALUATE),
        ("pkg/__init__.py", ""),
        ("pkg/train.py", TRAIN),
        (".torchxconfig", "[cli:run]\nscheduler = local_cwd\n"),
    ):
        (folder / name).write_text(text, "utf-8")
    variables = {**environment, "TERM": "dumb", "PS1": "", "HISTFILE": ""}
    with Terminal(
        ["bash", "--norc", "--noprofile", "--noediting"], variables, str(folder)
    ) as found:
        yield found


def test_each_task_takes_one_try(shell: Terminal) -> None:
    commands = documented()
    for number, task in enumerate(TASKS):
        command = task.command or commands[task.name]
        before = len(shell.shown)
        shell.type(f"{command}; echo end-{number}=$?")
        shell.expect(f"end-{number}=0\n", before)
        assert task.shown in shell.shown[before:], f"{command}\n{shell.shown[before:]}"
