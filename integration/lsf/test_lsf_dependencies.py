"""Apps that LSF holds until another app has ended, on the double of LSF."""

from __future__ import annotations

from pathlib import Path

import pytest
from lsf_jobs import app, jobs
from waiting import wait_for

from torchx_kit.batch.errors import RefusedError
from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppDef, AppState, Role


def gated(gate: Path, code: int, replicas: int = 2) -> AppDef:
    """Return an app whose replicas wait for a file; replica 1 then exits with ``code``."""
    script = f'until [ -e {gate} ]; do sleep 0.1; done; [ "$TORCHX_REPLICA_ID" = 0 ] || exit {code}'
    return AppDef(
        "first", [Role("main", "", entrypoint="sh", args=["-c", script], num_replicas=replicas)]
    )


@pytest.mark.parametrize(
    ("outcome", "code", "starts"),
    [
        ("ok", 0, True),
        ("ok", 3, False),
        ("failed", 3, True),
        ("failed", 0, False),
        ("any", 0, True),
        ("any", 3, True),
    ],
)
def test_lsf_holds_an_app_until_another_has_ended(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path, outcome: str, code: int, starts: bool
) -> None:
    gate = tmp_path / "gate"
    first = scheduler.submit(gated(gate, code), {})
    cfg = scheduler.with_dependency({}, first, outcome)
    assert cfg is not None
    second = scheduler.submit(app(f"test -e {gate}", count=2), cfg)
    found = scheduler.describe(second)
    assert found is not None
    assert found.state == AppState.PENDING
    gate.touch()
    wait_for(scheduler, first)
    if starts:
        assert wait_for(scheduler, second).state == AppState.SUCCEEDED
        return
    third = scheduler.submit(app("true"), {})  # LSF still starts other jobs
    wait_for(scheduler, third)
    found = scheduler.describe(second)
    assert found is not None
    assert found.state == AppState.PENDING
    scheduler.cancel(second)


def test_the_elements_of_an_array_wait_and_are_waited_for(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    first = scheduler.submit(gated(gate, 0, replicas=1), {})
    cfg = scheduler.with_dependency({}, first, "ok")
    assert cfg is not None
    infos = [scheduler.submit_dryrun(app(f"test -e {gate}"), cfg) for _ in range(3)]
    ids = list(scheduler.app_arrays.submit(infos))
    given = {"dependency": f"ended({jobs(lsf)[0]['id']})"}
    after = scheduler.with_dependency(given, ids[2], "ok")
    assert after is not None
    last = scheduler.submit(app(f"test -e {gate}"), after)
    for app_id in [*ids, last]:
        found = scheduler.describe(app_id)
        assert found is not None
        assert found.state == AppState.PENDING
    gate.touch()
    for app_id in [*ids, last]:
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_an_array_as_a_whole_is_left_to_the_caller(scheduler: LsfScheduler) -> None:
    infos = [scheduler.submit_dryrun(app("true"), {}) for _ in range(2)]
    ids = list(scheduler.app_arrays.submit(infos))
    array = ids[0].rpartition(".")[0]
    assert scheduler.with_dependency({}, array, "ok") is None
    assert scheduler.with_dependency({}, "no-such-app", "ok") is None


def test_a_condition_that_lsf_refuses_is_its_error(scheduler: LsfScheduler, lsf: Path) -> None:
    with pytest.raises(RefusedError, match="Bad dependency expression"):
        scheduler.submit(app("true"), {"dependency": "done(1"})
    with pytest.raises(RefusedError, match="Dependency condition invalid"):
        scheduler.submit(app("true"), {"dependency": "done(99999)"})
