"""Job arrays on the double of LSF."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsf_jobs import app, jobs, unfinished
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.errors import UnreachableError
from torchx_kit.hosts import agent
from torchx_sched_lsf.scheduler import LsfScheduler, create_scheduler
from torchx_specs import AppDef, AppState, macros
from torchx_specs.errors import CapacityError

# A client that submits an array of 20 apps; the tests run it as a process and kill it.
CLIENT = """\
from torchx_sched_lsf.scheduler import create_scheduler
from torchx_specs import AppDef, Role
scheduler = create_scheduler("client")
infos = []
for i in range(20):
    role = Role("main", image="", entrypoint="sh", args=["-c", f"echo {i} >> ran"])
    infos.append(scheduler.submit_dryrun(AppDef(f"sweep-{i}-0", [role]), {}))
print(*scheduler.app_arrays.submit(infos))
"""


def submit(
    scheduler: LsfScheduler,
    scripts: list[str],
    max_parallel: int | None = None,
    env: dict[str, str] | None = None,
    **cfg: object,
) -> Iterator[str]:
    infos = []
    for number, script in enumerate(scripts):
        one = app(script, name=f"sweep-{number}-0")
        one.roles[0].env.update(env or {}, NUMBER=str(number))
        infos.append(scheduler.submit_dryrun(one, cfg))
    return scheduler.app_arrays.submit(infos, max_parallel=max_parallel)


def calls(lsf: Path, program: str) -> list[str]:
    lines = (lsf / "calls.log").read_text().splitlines()
    return [line for line in lines if line.split()[0] == program and "-V" not in line]


def states(scheduler: LsfScheduler, app_ids: list[str]) -> list[AppState]:
    return [wait_for(scheduler, app_id).state for app_id in app_ids]


def test_one_bsub_submits_all_apps(scheduler: LsfScheduler, lsf: Path) -> None:
    scripts = [f"echo $NUMBER {macros.app_id}; exit {i}" for i in range(3)]
    app_ids = list(submit(scheduler, scripts))
    assert len(calls(lsf, "bsub")) == 1
    array = app_ids[0].removesuffix(".0")
    assert app_ids == [f"{array}.{i}" for i in range(3)]
    assert states(scheduler, app_ids) == [AppState.SUCCEEDED, AppState.FAILED, AppState.FAILED]
    for number, app_id in enumerate(app_ids):
        assert list(scheduler.log_iter(app_id, "main")) == [f"{number} {app_id}\n"]
    listed = {one.app_id: (one.name, one.exit_code) for one in scheduler.list()}
    assert listed == {app_id: (f"sweep-{i}-0", i) for i, app_id in enumerate(app_ids)}
    failed = scheduler.describe(app_ids[2])
    assert failed is not None
    assert failed.roles_statuses[0].replicas[0].exit_code == 2
    whole = scheduler.describe(array)
    assert whole is not None
    assert (whole.state, whole.msg) == (
        AppState.FAILED,
        "array of 3 elements: 1 SUCCEEDED, 2 FAILED",
    )


def test_arrays_are_split_by_the_largest_size_and_share_the_limit(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_MAX_ARRAY", "3")
    app_ids = list(submit(scheduler, ["true"] * 8, max_parallel=2))
    specs = [re.search(r"-J '[^\[]+(.*?)'", call) for call in calls(lsf, "bsub")]
    assert [spec[1] for spec in specs if spec] == ["[1-3]%1", "[1-3]%1", "[1-2]%1"]
    assert "'ended(101)'" in calls(lsf, "bsub")[2]
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}
    assert Counter(one.name for one in scheduler.list()) == Counter(
        f"sweep-{i}-0" for i in range(8)
    )


def test_an_array_that_lsf_refuses_as_too_large_is_split(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without bparams, only bsub's refusal shows that an array is too large."""
    (tmp_path / "bin" / "bparams").write_text("#!/bin/sh\necho no >&2; exit 1\n")
    monkeypatch.setenv("LSF_DOUBLE_MAX_ARRAY", "4")
    app_ids = list(submit(scheduler, ["true"] * 6))
    assert len(calls(lsf, "bsub")) == 3
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}
    assert len(scheduler.list()) == 6


def test_the_limit_of_pending_jobs_holds_apps_back(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, bsub would wait as long as too many jobs are pending."""
    monkeypatch.setenv("LSF_DOUBLE_MAX_PEND", "3")
    submitted = submit(scheduler, ["true"] * 6, extra=["-H"])
    assert len([next(submitted) for _ in range(3)]) == 3
    with pytest.raises(CapacityError, match="Pending job threshold reached"):
        next(submitted)
    assert len(jobs(lsf)) == 3
    assert len(scheduler.list()) == 3
    for one in scheduler.list():
        scheduler.cancel(one.app_id)
    wait_until(lambda: not unfinished(lsf))


def test_apps_that_differ_otherwise_are_submitted_one_by_one(
    scheduler: LsfScheduler, lsf: Path
) -> None:
    infos = [scheduler.submit_dryrun(app("true", memory=50 + i), {}) for i in range(3)]
    submitted = scheduler.app_arrays.submit(infos, max_parallel=2)
    app_ids = [next(submitted) for _ in range(2)]
    with pytest.raises(CapacityError, match="1 apps would exceed max_parallel=2"):
        next(submitted)
    assert not any("." in app_id for app_id in app_ids)
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}


def test_elements_are_cancelled_and_deleted_alone(scheduler: LsfScheduler, lsf: Path) -> None:
    app_ids = list(submit(scheduler, ["sleep 86400"] * 4, max_parallel=2))
    wait_for(scheduler, app_ids[0], AppState.RUNNING)
    scheduler.cancel(app_ids[0])
    scheduler.delete(app_ids[3])
    assert calls(lsf, "bkill") == ["bkill '101[1]'", "bkill '101[4]'"]
    assert wait_for(scheduler, app_ids[0]).state == AppState.CANCELLED
    assert scheduler.describe(app_ids[3]) is None
    assert not scheduler.exists(app_ids[3])
    wait_for(scheduler, app_ids[1], AppState.RUNNING)
    wait_for(scheduler, app_ids[2], AppState.RUNNING)
    assert [one.app_id for one in scheduler.list()] == app_ids[:3]
    scheduler.app_arrays.cancel(app_ids)
    assert calls(lsf, "bkill")[-1].endswith("'101[2]' '101[3]'")
    assert states(scheduler, app_ids[:3]) == [AppState.CANCELLED] * 3


def test_a_whole_array_is_cancelled_and_deleted(scheduler: LsfScheduler, lsf: Path) -> None:
    app_ids = list(submit(scheduler, ["true", "exit 3", "sleep 86400", "sleep 86400"]))
    array = app_ids[0].removesuffix(".0")
    assert states(scheduler, app_ids[:2]) == [AppState.SUCCEEDED, AppState.FAILED]
    scheduler.cancel(array)
    assert states(scheduler, app_ids) == [
        AppState.SUCCEEDED,
        AppState.FAILED,
        AppState.CANCELLED,
        AppState.CANCELLED,
    ]
    assert list(Path().glob(f"{array}*"))
    scheduler.delete(array)
    assert list(Path().iterdir()) == []
    assert scheduler.list() == []
    assert scheduler.describe(app_ids[1]) is None


def test_a_requeued_element_runs_again(scheduler: LsfScheduler, lsf: Path) -> None:
    script = "echo run; [ -e again$NUMBER ] || { touch again$NUMBER; exec sleep 86400; }"
    app_ids = list(submit(scheduler, [script] * 2))
    wait_until(lambda: Path("again0").exists() and Path("again1").exists())
    subprocess.run(["brequeue", "101[2]"], check=True, capture_output=True)
    assert wait_for(scheduler, app_ids[1]).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_ids[1], "main")) == ["run\n", "run\n"]
    found = scheduler.describe(app_ids[0])
    assert found is not None
    assert found.state == AppState.RUNNING
    scheduler.cancel(app_ids[0])


def test_the_time_limit_holds_for_each_element(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_MINUTE", "1")
    app_ids = list(submit(scheduler, ["exec sleep 86400", "true"], time="2"))
    assert states(scheduler, app_ids) == [AppState.FAILED, AppState.SUCCEEDED]
    found = scheduler.describe(app_ids[0])
    assert found is not None
    assert "TERM_RUNLIMIT" in found.msg


@pytest.mark.parametrize("kind", ["old", "index in JOBID"])
def test_rows_of_bjobs(
    scheduler: LsfScheduler,
    lsf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    if kind == "old":
        monkeypatch.setenv("LSF_DOUBLE_OLD", "1")
    else:
        (tmp_path / "lsf.conf").write_text("LSB_BJOBS_DISPLAY_ENH=Y\n")
        monkeypatch.setenv("LSF_ENVDIR", str(tmp_path))
    app_ids = list(submit(scheduler, ["sleep 86400"] * 3))
    wait_for(scheduler, app_ids[1], AppState.RUNNING)
    scheduler.app_arrays.cancel(app_ids[:2])
    assert states(scheduler, app_ids[:2]) == [AppState.CANCELLED] * 2
    assert [one.state for one in scheduler.list()][2] == AppState.RUNNING
    scheduler.cancel(app_ids[2])


def test_elements_that_were_submitted_with_another_home(
    scheduler: LsfScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_ids = list(submit(scheduler, ["sleep 86400"] * 2))
    wait_for(scheduler, app_ids[0], AppState.RUNNING)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "another home"))
    another = create_scheduler("another")
    assert [one.app_id for one in another.list()] == app_ids
    another.cancel(app_ids[1])
    wait_for(another, app_ids[1], AppState.FAILED, AppState.CANCELLED)
    found = another.describe(app_ids[0])
    assert found is not None
    assert (found.state, found.roles_statuses[0].role) == (AppState.RUNNING, "main")
    scheduler.app_arrays.cancel(app_ids)


def test_secrets_reach_the_elements_that_refer_to_them(
    scheduler: LsfScheduler, tmp_path: Path
) -> None:
    folder = tmp_path / "torchx" / "secrets"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "hf").write_text("hush")
    (folder / "hf").chmod(0o600)
    infos = []
    for i in range(2):
        one = app("echo ${TOKEN-none}", name=f"a-{i}")
        one.roles[0].env.update({"TOKEN": "${secret:hf}"} if i else {})
        infos.append(scheduler.submit_dryrun(one, {}))
    app_ids = list(scheduler.app_arrays.submit(infos))
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}
    assert [list(scheduler.log_iter(one, "main")) for one in app_ids] == [["none\n"], ["hush\n"]]


def test_each_element_is_submitted_once_although_the_client_is_killed(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is killed before bsub has printed the array's id."""
    monkeypatch.setenv("LSF_DOUBLE_SLOW", "1")
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE)
    wait_until(lambda: len(jobs(lsf)) == 20)
    client.kill()
    assert client.communicate()[0] == b""
    listed = scheduler.list()
    assert Counter(one.name for one in listed) == Counter(f"sweep-{i}-0" for i in range(20))
    assert set(states(scheduler, [one.app_id for one in listed])) == {AppState.SUCCEEDED}
    assert Counter(Path("ran").read_text().split()) == Counter(map(str, range(20)))
    assert len(calls(lsf, "bsub")) == 1


def test_an_array_is_submitted_again_after_lsf_did_not_answer(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler.system, "patience", 0.0)
    scheduler.system.prepare()
    (tmp := lsf / "down").touch()
    with pytest.raises(UnreachableError):
        list(submit(scheduler, ["sleep 86400"] * 2))
    tmp.unlink()
    assert {one.state for one in scheduler.list()} <= {AppState.CANCELLED}
    app_ids = list(submit(scheduler, ["true"] * 2))
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}


def test_a_thousand_apps_need_few_files_and_queries(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [
        scheduler.submit_dryrun(AppDef(f"a-{i}", app(f"exit {i}").roles), {}) for i in range(1000)
    ]
    (tmp_path / "bin" / "bsub").write_text("#!/bin/sh\necho 'Job <7> is submitted to <q>.'\n")
    app_ids = list(scheduler.app_arrays.submit(infos))
    [record] = Path(".torchx-lsf").iterdir()
    assert len([path for path in record.iterdir() if path.name.startswith("tasks-")]) == 10
    reads: list[str] = []
    read = agent.read
    monkeypatch.setattr(agent, "read", lambda *args: reads.append(args[0]) or read(*args))
    before = len(calls(lsf, "bjobs"))
    assert len(scheduler.list()) == len(app_ids) == 1000
    # LSF lists none of the jobs, so it is also queried why, and once again.
    assert len(calls(lsf, "bjobs")) - before == 3
    assert len(set(reads)) == len(reads)
