"""States of apps on the double of LSF: limits, requeues, forgotten jobs; numbers of queries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lsf_jobs import app, jobs, unfinished
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_sched_lsf.scheduler import LsfScheduler, create_scheduler
from torchx_specs import AppDef, AppState, Role, macros

pytestmark = pytest.mark.usefixtures("lsf")


def calls(folder: Path, name: str) -> int:
    lines = (folder / "calls.log").read_text().split("\n")
    return sum(line.startswith(f"{name} ") for line in lines)


def log_of(scheduler: LsfScheduler, app_id: str, k: int = 0) -> list[str]:
    return list(scheduler.log_iter(app_id, "main", k))


@pytest.mark.parametrize("retries", [0, 3])
def test_run_limit_fails_the_app_and_is_not_retried(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, retries: int
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_MINUTE", "2")
    job = app("echo started; sleep 86400", macros.replica_id, count=2)
    job.roles[0].max_retries = retries
    app_id = scheduler.submit(job, {"time": "1"})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert "TERM_RUNLIMIT: run time limit reached (option time)" in found.msg
    assert log_of(scheduler, app_id) == ["started\n"]


def test_replica_that_its_owner_killed_does_not_end_the_others(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path
) -> None:
    script = f'[ $0 = 1 ] && exec sleep 86400; until [ -e "{tmp_path}/go" ]; do sleep 0.1; done'
    app_id = scheduler.submit(app(script, macros.replica_id, count=2), {})
    record = Path(".torchx-lsf", app_id)
    wait_until(lambda: len(list(record.glob("replica-0-[01]"))) == 2)
    subprocess.run(["bkill", str(jobs(lsf)[1]["id"])], check=True, capture_output=True)
    wait_until(lambda: list(record.glob("seen-*")))
    wait_until(lambda: calls(lsf, "bjobs") > 0)
    (tmp_path / "go").touch()
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED
    assert [job["stat"] for job in jobs(lsf)] == ["DONE", "EXIT"]


@pytest.mark.parametrize("words", ["", "1"], ids=["with-reasons", "without"])
def test_a_memory_limit_of_one_replica_ends_the_others(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_NO_REASONS", words)
    fill = "[ $0 = 1 ] && x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 86400"
    app_id = scheduler.submit(app(fill, macros.replica_id, count=2), {"extra": ["-M", "100MB"]})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    first, second = found.roles_statuses[0].replicas
    assert (first.state, second.state) == (AppState.CANCELLED, AppState.FAILED)
    assert first.reason == "another replica failed"
    assert ("TERM_MEMLIMIT: out of memory" in second.reason) == (not words)
    wait_until(lambda: not unfinished(lsf))


def test_exit_code_130_of_a_program_is_a_failure(scheduler: LsfScheduler) -> None:
    app_id = scheduler.submit(app("exit 130"), {})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert found.roles_statuses[0].replicas[0].exit_code == -2  # as after SIGINT


@pytest.mark.parametrize("words", ["", "1"], ids=["with-reasons", "without"])
def test_a_pending_job_that_bkill_ends_is_cancelled_with_a_reason(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_NO_REASONS", words)
    app_id = scheduler.submit(app("true"), {"extra": ["-H"]})
    subprocess.run(["bkill", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert ("killed before it started" if words else "killed by its owner") in found.msg
    assert found.started is None


def test_a_stopped_job_keeps_its_start(scheduler: LsfScheduler, lsf: Path) -> None:
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_until(lambda: Path(".torchx-lsf", app_id, "replica-0-0").exists())
    job_id = str(jobs(lsf)[0]["id"])
    subprocess.run(["bstop", job_id], check=True, capture_output=True)
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.started is None) == (AppState.PENDING, False)
    assert "stopped; bresume continues it" in found.msg
    subprocess.run(["bresume", job_id], check=True, capture_output=True)
    scheduler.cancel(app_id)


def test_a_job_that_runs_has_a_start_before_it_has_a_report(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = scheduler.submit(app("true"), {"extra": ["-H"]})
    [script] = lsf.glob("*.script")
    script.write_text(f'until [ -e "{tmp_path}/go" ]; do sleep 0.1; done\n')
    subprocess.run(["bresume", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    found = wait_for(scheduler, app_id, AppState.RUNNING)
    assert found.started is not None
    (tmp_path / "go").touch()
    wait_until(lambda: not unfinished(lsf))


@pytest.mark.parametrize("old", [False, True])
def test_a_host_that_is_down_is_the_reason_of_the_failure(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    if old:
        monkeypatch.setenv("LSF_DOUBLE_OLD", "1")
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_until(lambda: Path(".torchx-lsf", app_id, "replica-0-0").exists())
    (lsf / "host-down").touch()
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.msg) == (AppState.RUNNING, "main/0: its host does not answer")
    (lsf / "host-down").unlink()
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert "TERM_ZOMBIE: its host failed" in found.msg


def test_a_job_that_bkill_ends_while_its_host_is_down_is_cancelled(
    scheduler: LsfScheduler, lsf: Path
) -> None:
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_until(lambda: Path(".torchx-lsf", app_id, "replica-0-0").exists())
    (lsf / "host-down").touch()
    scheduler.cancel(app_id)
    assert jobs(lsf)[0]["stat"] == "ZOMBI"
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED
    (lsf / "host-down").unlink()
    wait_until(lambda: not unfinished(lsf))


def test_a_host_that_cannot_see_the_directory_is_the_reason(
    scheduler: LsfScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_HIDDEN", str(tmp_path))
    found = wait_for(scheduler, scheduler.submit(app("true"), {}))
    assert found.state == AppState.FAILED
    assert "its host cannot see the directory of the jobs; set the option jobdir" in found.msg
    assert found.roles_statuses[0].replicas[0].exit_code == 127


def test_requeued_job_is_pending_and_can_be_cancelled(scheduler: LsfScheduler, lsf: Path) -> None:
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_until(lambda: Path(".torchx-lsf", app_id, "replica-0-0").exists())
    subprocess.run(["brequeue", "-H", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    wait_until(lambda: jobs(lsf)[0]["stat"] == "PSUSP")
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state == AppState.PENDING
    assert found.roles_statuses[0].replicas[0].reason.startswith("requeued")
    scheduler.cancel(app_id)
    assert jobs(lsf)[0]["stat"] == "EXIT"
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED


def test_requeued_job_runs_again(scheduler: LsfScheduler, lsf: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    app_id = scheduler.submit(
        app(f'[ -e "{started}" ] && exit; touch "{started}"; sleep 86400'), {}
    )
    wait_until(started.exists)
    subprocess.run(["brequeue", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_final_states_stay_after_lsf_has_forgotten_the_jobs(
    scheduler: LsfScheduler, lsf: Path
) -> None:
    good = scheduler.submit(app("exit 0"), {})
    killed = scheduler.submit(app("sleep 86400"), {})
    wait_until(lambda: jobs(lsf)[1]["stat"] == "RUN")
    subprocess.run(["bkill", str(jobs(lsf)[1]["id"])], check=True, capture_output=True)
    before = {app_id: wait_for(scheduler, app_id) for app_id in (good, killed)}
    assert [found.state for found in before.values()] == [AppState.SUCCEEDED, AppState.CANCELLED]
    for path in lsf.glob("*.json"):
        path.unlink()
    for path in Path(".torchx-lsf").rglob("replica-*"):
        path.unlink()
    another = create_scheduler("another")
    assert {app_id: another.describe(app_id) for app_id in before} == before


@pytest.mark.parametrize("old", [False, True])
def test_status_of_many_pending_replicas_takes_two_queries(
    scheduler: LsfScheduler, lsf: Path, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    if old:
        monkeypatch.setenv("LSF_DOUBLE_OLD", "1")
    app_id = scheduler.submit(app("true", count=8), {"extra": ["-H"]})
    before = calls(lsf, "bjobs")
    scheduler.describe(app_id)
    # an old bjobs refuses -o, so the first query is repeated
    assert calls(lsf, "bjobs") - before == (3 if old else 2)
    scheduler.cancel(app_id)


def test_list_takes_one_query_for_all_pending_apps(scheduler: LsfScheduler, lsf: Path) -> None:
    app_ids = [scheduler.submit(app("true", count=2), {"extra": ["-H"]}) for _ in range(4)]
    before = calls(lsf, "bjobs")
    assert len(scheduler.list()) == 4
    assert calls(lsf, "bjobs") - before == 1
    for app_id in app_ids:
        scheduler.cancel(app_id)


def test_cancel_takes_one_bkill(scheduler: LsfScheduler, lsf: Path) -> None:
    app_id = scheduler.submit(app("true", count=4), {"extra": ["-H"]})
    scheduler.cancel(app_id)
    assert calls(lsf, "bkill") == 1


def test_jobs_of_other_tools_are_not_apps(scheduler: LsfScheduler, lsf: Path) -> None:
    """A job of another tool is neither listed nor cancelled, though its name looks like ours."""
    subprocess.run(["bsub", "-J", "nightly-main-0", "sleep", "86400"], check=True)
    assert scheduler.list() == []
    assert scheduler.describe("nightly") is None
    scheduler.cancel("nightly")
    app_id = scheduler.submit(AppDef("x", [Role("main", image="", entrypoint="true")]), {})
    wait_for(scheduler, app_id)
    scheduler.cancel(app_id)  # has ended: bkill without ids would kill the other job
    wait_until(lambda: unfinished(lsf) == ["nightly-main-0"])
    subprocess.run(["bkill", str(jobs(lsf)[0]["id"])], check=True, capture_output=True)


def test_setup_runs_in_elements_of_an_array(scheduler: LsfScheduler) -> None:
    cfg = {"setup": ["export X=set"]}
    infos = [scheduler.submit_dryrun(app(f'echo "$X {k}"'), cfg) for k in range(2)]
    for k, app_id in enumerate(list(scheduler.app_arrays.submit(infos))):
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        assert log_of(scheduler, app_id) == [f"set {k}\n"]
