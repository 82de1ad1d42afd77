"""Verifying many things at once, each by programs in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import bootstrap
import environments


class Failed(Exception):
    """A step that failed, with its output."""


def run(command: Sequence[str], *, cwd: Path, environment: Path | None = None) -> str:
    """Runs ``command``; its output.

    Args:
        command: The program and its arguments.
        cwd: Where it runs.
        environment: An environment to run it in as if that were activated.

    Raises:
        Failed: It exited with something else than 0.
    """
    variables = dict(os.environ) if environment is None else bootstrap.activated(environment)
    variables.pop("PYTHONPATH", None)
    done = subprocess.run(
        command,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise Failed(f"$ {' '.join(command)}\n{done.stdout}exit code {done.returncode}")
    return done.stdout


def verify_all(what: str, names: Iterable[str], verify: Callable[[str], str]) -> int:
    """Verifies each of ``names``, as many at once as there are cores, and prints what was seen.

    Args:
        what: What the last line calls all of it.
        names: What ``verify`` is called with.
        verify: Returns what it has seen; raises :class:`Failed` or
            :class:`environments.EnvironmentFailure`.

    Returns:
        The exit code.
    """
    begun = time.monotonic()
    passed, failed = 0, []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        tasks = {pool.submit(verify, name): name for name in names}
        for task in as_completed(tasks):
            at = f"{time.monotonic() - begun:4.0f} s  {tasks[task]}"
            try:
                print(f"{at}: {task.result()}", flush=True)
                passed += 1
            except (Failed, environments.EnvironmentFailure) as failure:
                failed.append(tasks[task])
                print(f"{at}: FAILED\n{failure}", flush=True)
    which = f": {', '.join(sorted(failed))}" if failed else ""
    print(f"{what}: {passed} passed, {len(failed)} failed{which}", flush=True)
    return 1 if failed else 0
