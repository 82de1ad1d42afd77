"""Attempts of an app with the option ``requeue``: its resume folder, and when it starts again.

``docs/resilience.md`` describes the contract between schedulers and jobs.
:mod:`torchx_kit.scripts.attempt_script` has the same rules as shell code.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torchx_kit.times import limit_option, moment
from torchx_kit.trust import distrust
from torchx_specs.errors import RequestError
from torchx_specs.model.status import AttemptStatus
from torchx_specs.options.structured import StructuredOpts
from torchx_specs.settings import (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_RESTART_REASON,
    ENV_TORCHX_RESUME_DIR,
    ENV_TORCHX_STOP_GRACE,
)

#: A replica that ends with this exit code asks for another attempt.
EXIT_REQUEUE = 75
#: The reasons that count as failures of the program, whose number ``max_retries`` limits.
FAILURES = ("failed", "out-of-memory")
#: After this number of attempts in a row without a newly committed step, there is no further one.
MOST_WITHOUT_PROGRESS = 3
#: What each attempt of a job knows.
ATTEMPT_VARIABLES: tuple[str, ...] = (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_RESTART_REASON,
    ENV_TORCHX_RESUME_DIR,
    ENV_TORCHX_STOP_GRACE,
)
#: Variables by which torchrun passes signals on to its ranks, and waits for them.
TORCHRUN_VARIABLES = ("PET_SIGNALS_TO_HANDLE", "PET_SHUTDOWN_TIMEOUT")
#: The default of the option ``max_node_failures``.
MAX_NODE_FAILURES = 3
#: Why an app does not start again.
NO_PROGRESS = (
    f"it does not start again: {MOST_WITHOUT_PROGRESS} attempts in a row have committed no new step"
)
NODE_FAILURES = "it does not start again: too many node failures (option max_node_failures)"
TOTAL_TIME = "it does not start again: its time is over (option max_total_time)"

# The name of the folder of a committed checkpoint in the resume folder is this and the step.
_STEP = "step-"
# Lines of the file of attempts.
_START = re.compile(r"start (\d+) (\d+) (\d+|-) (.*)")
_END = re.compile(r"end (\S+) (\d+) (\d+|-)(?: (\S*))?")


@dataclass(kw_only=True)  # a subclass may have required options
class AttemptOpts(StructuredOpts):
    """Options of schedulers that start an app again after a preemption."""

    requeue: bool = False
    """start the app again after a preemption, a node failure, its time limit, or exit code 75 of a
    replica; max_retries counts failures of the program only"""

    resume_dir: str | None = None
    """pass this folder to all attempts as TORCHX_RESUME_DIR, and create it if it is missing;
    implies requeue. All replicas must share it. ${app_id} becomes the app's id. After three
    attempts in a row without a newly committed step, the app does not start again"""

    max_node_failures: int | None = None
    """with requeue, do not start the app again after more node failures than this (default: 3)"""

    max_total_time: str | None = None
    """with requeue, end the app when its attempts have run for this time together, without the
    time between them: 90m, 8h, 7d"""

    requeue_exit_codes: list[str] | None = None
    """with requeue, start the app again after these exit codes, too. Example:
    requeue_exit_codes=3;4"""


class AttemptRules(NamedTuple):
    """When an app with the option ``requeue`` starts again.

    Args:
        max_node_failures: The largest number of attempts that end by a node failure.
        max_total_seconds: How long all attempts may run together; None means without a limit.
        exit_codes: The exit codes of a replica that ask for another attempt.
    """

    max_node_failures: int = MAX_NODE_FAILURES
    max_total_seconds: float | None = None
    exit_codes: Sequence[int] = (EXIT_REQUEUE,)


def attempt_rules(cfg: Mapping[str, Any]) -> AttemptRules | None:
    """Return the rules in the options :class:`AttemptOpts`; None for an app without attempts.

    Raises:
        RequestError: An option is not valid.
    """
    for problem in attempt_problems(cfg):
        raise RequestError(problem)
    if not (cfg.get("requeue") or cfg.get("resume_dir")):
        return None
    most, total = cfg.get("max_node_failures"), cfg.get("max_total_time")
    return AttemptRules(
        MAX_NODE_FAILURES if most is None else most,
        limit_option("max_total_time", total) if total else None,
        (EXIT_REQUEUE, *map(int, cfg.get("requeue_exit_codes") or ())),
    )


def attempt_problems(cfg: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of the options :class:`AttemptOpts`, one line each."""
    if not (cfg.get("requeue") or cfg.get("resume_dir")):
        for name in ("max_node_failures", "max_total_time", "requeue_exit_codes"):
            if cfg.get(name) is not None:
                yield f"option {name} needs the option requeue or resume_dir"
    most, total = cfg.get("max_node_failures"), cfg.get("max_total_time")
    if most is not None and most < 0:
        yield f"option max_node_failures: {most} is negative"
    if total:
        try:
            limit_option("max_total_time", total)
        except RequestError as e:
            yield str(e)
    for code in cfg.get("requeue_exit_codes") or ():
        if not (code.isdecimal() and 1 <= int(code) <= 255):
            yield f"option requeue_exit_codes: '{code}' is not an exit code from 1 to 255"


def parse_attempts(text: str) -> list[AttemptStatus]:
    """Return the attempts in the file of :mod:`torchx_kit.scripts.attempt_script`.

    An attempt that has not reported its end has no reason.
    """
    found: list[AttemptStatus] = []
    for line in text.splitlines():
        if match := _START.fullmatch(line):
            number, time, step, _ = match.groups()
            started = moment(int(time))
            found.append(AttemptStatus(int(number), started, resume_step=_parse_step(step)))
        elif (match := _END.fullmatch(line)) and found:
            reason, time, step, nodes = match.groups()
            found[-1] = replace(
                found[-1],
                reason=reason,
                ended=moment(int(time)),
                committed_step=_parse_step(step),
                nodes=tuple(sorted(set(nodes.split(",")))) if nodes else (),
            )
    return found


def last_resume_dir(text: str) -> str:
    """Return the resume folder of the newest attempt in that file; empty if there is none."""
    starts = filter(None, map(_START.fullmatch, text.splitlines()))
    return [match[4] for match in starts][-1]


def _parse_step(text: str) -> int | None:
    return int(text) if text.isdigit() else None


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
    rules: AttemptRules,
    reasons: Sequence[str],
    steps: Sequence[int | None],
    seconds: float,
    *,
    max_retries: int,
    has_folder: bool,
) -> str | None:
    """Return why an app does not start again after its last attempt; None if it does.

    The reason is empty if the failure of the program itself is the reason.

    Args:
        rules: The rules.
        reasons: Why each attempt ended.
        steps: The newest committed step before the first attempt, and after each attempt.
        seconds: How long the attempts have run together.
        max_retries: The largest number of failures of the program.
        has_folder: Whether the app has a resume folder, which shows its progress.
    """
    is_failure = reasons[-1] in FAILURES
    if is_failure and sum(reason in FAILURES for reason in reasons) > max_retries:
        return ""
    if reasons.count("node-failure") > rules.max_node_failures:
        return NODE_FAILURES
    if rules.max_total_seconds is not None and seconds >= rules.max_total_seconds:
        return TOTAL_TIME
    count = MOST_WITHOUT_PROGRESS
    is_stuck = len(reasons) >= count and steps[-1] == steps[-1 - count]
    return NO_PROGRESS if has_folder and not is_failure and is_stuck else None


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
