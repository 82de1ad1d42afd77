"""Helpers for tests of sweeps that run on a batch system and on this machine.

Each element appends its number to a file when it begins.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

from torchx_runner import get_runner
from torchx_sweep import ElementState, api, rerun, results, sweep, wait
from torchx_sweep.drivers import process

_COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def write(n: int, out: str) -> AppDef:
    """Append a number to a file.

    Args:
        n: The number.
        out: The file.
    """
    script = f"echo {{n}} >> {{out}}; sleep 0.2"
    role = Role("main", image="{image}", entrypoint="sh", args=["-c", script])
    role.resource = Resource(cpu=1, gpu=0, memMB=10)
    return AppDef("write", roles=[role])
'''
# The shortest and the longest time before a driver is killed, in seconds.
_LIVES = (2.0, 5.0)


def create(
    name: str,
    out: Path,
    count: int,
    *,
    image: str = "",
    cfg: Mapping[str, Any] | None = None,
    **options: Any,
) -> str:
    """Create a sweep, with its component in the current directory, and return its handle.

    Args:
        name: The scheduler of the batch system, which the sweep uses beside ``local_cwd``.
        out: The file to which each element appends its number.
        count: Number of elements.
        image: The image of the elements.
        cfg: The options of the scheduler ``name``.
        options: More arguments of :func:`torchx_sweep.sweep`.
    """
    Path("comp.py").write_text(_COMPONENT.format(image=image))
    with get_runner() as runner:
        return sweep(
            *(runner, "comp.py:write", ["--out", str(out)], [name, "local_cwd"]),
            workspace="",
            grid={"n": range(count)},
            limits={"cpus": 2},
            cfg={name: dict(cfg)} if cfg else {},
            **options,
        )


def written(out: Path) -> Counter[int]:
    """Return how often each element has begun, from the file ``out``."""
    return Counter(int(line) for line in out.read_text().split())


def schedulers_of(handle: str) -> set[str]:
    """Return the schedulers on which the elements of a sweep ended."""
    return {element.handle.partition(":")[0] for element in results(handle)}


def drive_with_kills(sweep_id: str, kills: int, before_kill: Callable[[int], object]) -> None:
    """Run several drivers of a sweep one after the other, and kill those that run for too long.

    The time after which a driver is killed is random.

    Args:
        sweep_id: The sweep's id.
        kills: Number of drivers, and so the largest number of kills.
        before_kill: Called before each kill with the number of the driver, which starts at 0.
    """
    code = f"from torchx_sweep.drivers.process import drive; drive({sweep_id!r})"
    generator = random.Random(3)  # noqa: S311 - no cryptography
    for number in range(kills):
        driver = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        try:
            driver.wait(generator.uniform(*_LIVES))
        except subprocess.TimeoutExpired:
            before_kill(number)
            driver.kill()
            driver.wait()


def run_with_kills(
    name: str,
    out: Path,
    count: int,
    kills: int,
    before_kill: Callable[[int], object],
    **options: Any,
) -> str:
    """Create a sweep, run it by drivers that are killed, and check that each element begins once.

    Args:
        name: The scheduler of the batch system, as for :func:`create`.
        out: The file to which each element appends its number.
        count: Number of elements.
        kills: Number of drivers, as for :func:`drive_with_kills`.
        before_kill: Called before each kill, as for :func:`drive_with_kills`.
        options: More arguments of :func:`create`.

    Returns:
        The sweep's handle.
    """
    with mock.patch.object(api, "ensure_driver"):
        handle = create(name, out, count, **options)
        drive_with_kills(handle.rpartition("/")[2], kills, before_kill)
        finish(handle, out, count)
    return handle


def finish(handle: str, out: Path, count: int) -> None:
    """Drive a sweep to its end, and check that each element succeeds and has begun once.

    An element whose driver was killed at the start of its local app has failed. This function runs
    it again, so that it may have begun twice. An element on Grid Engine whose driver was killed
    during its submission has failed, too, but has not begun. An element has also failed if its
    driver was killed between the deletion of its waiting Kubernetes pod and the record of this
    deletion. This function runs it again, too; it begins once, because the pod never had a node.

    Args:
        handle: The sweep's handle.
        out: The file to which each element appends its number.
        count: Number of elements.
    """
    sweep_id = handle.rpartition("/")[2]
    process.drive(sweep_id)
    wait(handle, timeout=60)
    failed = [one for one in results(handle) if one.state is not ElementState.SUCCEEDED]
    for one in failed:
        assert one.state is ElementState.FAILED, one
        if one.handle.startswith("kubernetes:"):
            assert "was deleted by somebody, not by its Job" in one.reason, one
        else:
            assert one.handle.startswith(("local_cwd:", "sge:")), one
            assert one.reason.startswith("the driver of the sweep was killed: "), one
    if failed:
        rerun(handle)
        process.drive(sweep_id)
    assert wait(handle, timeout=60).counts == {ElementState.SUCCEEDED: count}
    once = Counter(range(count))
    local = Counter(one.number for one in failed if one.handle.startswith("local_cwd:"))
    assert once <= written(out) <= once + local
