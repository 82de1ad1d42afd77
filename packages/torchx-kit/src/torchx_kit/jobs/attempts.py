"""Attempts of an app with the option ``requeue``: its resume folder, and when it starts again.

``docs/resilience.md`` describes the contract between schedulers and jobs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from torchx_kit.trust import distrust
from torchx_specs.errors import RequestError

#: A replica that ends with this exit code asks for another attempt.
EXIT_REQUEUE = 75
#: The reasons that count as failures of the program, whose number ``max_retries`` limits.
FAILURES = ("failed", "out-of-memory")
#: After this number of attempts in a row without a newly committed step, there is no further one.
MOST_WITHOUT_PROGRESS = 3

# The name of the folder of a committed checkpoint in the resume folder is this and the step.
_STEP = "step-"


def committed_step(resume_dir: str | None) -> int | None:
    """Return the newest committed step in a resume folder; None if there is none."""
    if resume_dir is None:
        return None
    try:
        return newest_step(os.listdir(resume_dir))
    except OSError:
        return None


def newest_step(names: Iterable[str]) -> int | None:
    """Return the newest committed step by the names in a resume folder; None if there is none."""
    steps = (name.removeprefix(_STEP) for name in names if name.startswith(_STEP))
    return max((int(step) for step in steps if step.isdecimal()), default=None)


def is_requested(resume_dir: str | None, number: int) -> bool:
    """Return whether a rank of an attempt asked for another one, by a file in the resume folder.

    A launcher such as torchrun loses the exit code of the ranks.
    """
    if resume_dir is None:
        return False
    attempts = os.path.join(resume_dir, "attempts")
    try:
        names = [name for name in os.listdir(attempts) if name.startswith(f"{number}.")]
    except OSError:
        return False
    return any(os.path.exists(os.path.join(attempts, name, "requeue")) for name in names)


def refusal(
    reasons: Sequence[str], steps: Sequence[int | None], max_retries: int, has_folder: bool
) -> str | None:
    """Return why an app does not start again after its last attempt; None if it does.

    Args:
        reasons: Why each attempt ended.
        steps: The newest committed step before the first attempt, and after each attempt.
        max_retries: The largest number of failures of the program.
        has_folder: Whether the app has a resume folder, which shows its progress.
    """
    if reasons[-1] in FAILURES:
        failures = sum(reason in FAILURES for reason in reasons)
        return "" if failures > max_retries else None
    count = MOST_WITHOUT_PROGRESS
    if has_folder and len(reasons) >= count and steps[-1] == steps[-1 - count]:
        return f"it does not start again: {count} attempts in a row have committed no new step"
    return None


def resume_dir_problems(path: object) -> Iterator[str]:
    """Yield the problem of an existing resume folder that belongs to others, or is no folder."""
    if not path:
        return
    try:
        status = os.stat(str(path))
    except OSError:
        return  # it is created at the submission
    if not os.path.isdir(str(path)):
        yield f"option resume_dir: '{path}' is not a folder"
    elif reason := distrust(status):
        yield f"option resume_dir: '{path}' cannot be used: {reason}; choose a folder of your own"


def make_resume_dir(path: str) -> None:
    """Create a resume folder with mode 0700, unless it exists.

    Raises:
        RequestError: The folder cannot be created, or belongs to others.
    """
    try:
        os.makedirs(path, 0o700, exist_ok=True)
    except OSError as e:
        raise RequestError(f"option resume_dir: cannot create '{path}': {e.strerror}") from e
    for problem in resume_dir_problems(path):
        raise RequestError(problem)
