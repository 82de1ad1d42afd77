"""Sweeps on a real Slurm: arrays, limits, dependencies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from slurm_jobs import Cluster, app, wait_for

from patience import wait_for as wait_until
from torchx_runner import get_runner
from torchx_sched_slurm.scheduler import create_scheduler
from torchx_specs import AppState
from torchx_specs.errors import RequestError
from torchx_sweep import ElementState, api, results, status, sweep, wait

COMPONENT = '''
from torchx_specs import AppDef, Resource, Role


def write(n: int, out: str, gate: str = "/") -> AppDef:
    """Append a number to a file.

    Args:
        n: The number.
        out: The file.
        gate: A file for which the job waits before its end.
    """
    line = f"echo {n} >> {out}; until [ -e {gate} ]; do sleep 0.1; done"
    role = Role("main", image="", entrypoint="sh", args=["-c", line])
    role.resource = Resource(cpu=1, gpu=0, memMB=10)
    return AppDef("write", roles=[role])
'''


@pytest.fixture(autouse=True)
def component(cluster: Cluster, work: Path) -> None:
    (work / "comp.py").write_text(COMPONENT)


def create(out: Path, count: int, *words: str, **options: object) -> str:
    with get_runner() as runner:
        arguments = ["--out", str(out), *words]
        grid = {"n": range(count)}
        cfg = options.pop("cfg", {})
        return sweep(
            runner, "comp.py:write", arguments, "slurm", cfg, workspace="", grid=grid, **options
        )


def written(out: Path) -> Counter[int]:
    return Counter(int(line) for line in out.read_text().split()) if out.exists() else Counter()


def test_a_sweep_is_one_array_and_is_cancelled_at_once(tmp_path: Path) -> None:
    handle = create(tmp_path / "out", 200, "--gate", "/never", max_parallel=4)
    wait_until(lambda: len(written(tmp_path / "out")) == 4, lambda: status(handle))
    expected = {ElementState.SUBMITTED: 196, ElementState.RUNNING: 4}
    wait_until(lambda: status(handle).counts == expected, lambda: status(handle))
    numbers = {element.handle.rpartition("/")[2].partition("_")[0] for element in results(handle)}
    assert len(numbers) == 1
    described = create_scheduler("test").describe(numbers.pop())
    assert described is not None
    assert described.state == AppState.RUNNING
    api.cancel(handle)
    counts = wait(handle, timeout=120).counts
    assert counts == {ElementState.CANCELLED: 200}
    assert len(written(tmp_path / "out")) == 4


@pytest.mark.parametrize("cluster", ["accounting"], indirect=True)
def test_the_limit_of_submitted_jobs_holds_elements_back_and_tells_it(tmp_path: Path) -> None:
    cfg = {"account": "research", "qos": "few"}
    gate = tmp_path / "gate"
    handle = create(tmp_path / "out", 10, "--gate", str(gate), cfg=cfg)
    wait_until(lambda: "QOSMaxSubmitJobPerUserLimit" in status(handle).note)
    assert "holds the other elements back" in status(handle).note
    gate.touch()
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 10}
    assert written(tmp_path / "out") == Counter(range(10))


def test_slurm_itself_holds_the_elements_until_a_job_has_ended(
    cluster: Cluster, work: Path, tmp_path: Path
) -> None:
    scheduler = create_scheduler("test")
    gate = tmp_path / "gate"
    first = scheduler.submit(app(f"until [ -e {gate} ]; do sleep 0.2; done"), {})
    handle = create(tmp_path / "out", 3, after=f"slurm://torchx/{first}")
    wait_until(lambda: status(handle).counts == {ElementState.SUBMITTED: 3})
    for element in results(handle):
        app_id = element.handle.rpartition("/")[2]
        wait_for(scheduler, app_id, AppState.PENDING, until=lambda found: "Depend" in found.msg)
    assert not (tmp_path / "out").exists()
    gate.touch()
    assert wait(handle, timeout=300).counts == {ElementState.SUCCEEDED: 3}
    with pytest.raises(RequestError, match="there is no such app or sweep"):
        create(tmp_path / "out", 3, after="slurm://torchx/4711")


def test_elements_that_wait_for_a_job_are_cancelled_when_it_fails(
    cluster: Cluster, work: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    line = f"until [ -e {gate} ]; do sleep 0.2; done; exit 1"
    first = create_scheduler("test").submit(app(line), {})
    handle = create(tmp_path / "out", 3, after=f"slurm://torchx/{first}")
    wait_until(lambda: status(handle).counts == {ElementState.SUBMITTED: 3})
    gate.touch()
    assert wait(handle, timeout=300).counts == {ElementState.CANCELLED: 3}
    assert not (tmp_path / "out").exists()
