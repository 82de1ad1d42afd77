"""Tests of the options ``requeue`` and ``resume_dir``."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest
from local_helpers import finish, lines, read_pids, run, sh, submit

from patience import wait_for
from torchx_sched_local.build_request import add_attempts
from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs import AppDef, AppState, RequestError, Role
from torchx_specs.model.status import AttemptStatus
from torchx_specs.schedulers import DescribeAppResponse

SHOW = "echo attempt $TORCHX_ATTEMPT ${TORCHX_RESTART_REASON-none}; "
# Commits one step in each attempt, as torchx_resilience does.
COMMIT = "mkdir $TORCHX_RESUME_DIR/step-$TORCHX_ATTEMPT; "


def until(attempt: int, code: int) -> str:
    """Return a script that ends with a code in the attempts before the given one."""
    return f"{SHOW}[ $TORCHX_ATTEMPT -ge {attempt} ] || exit {code}"


def reasons(found: DescribeAppResponse) -> list[str | None]:
    return [attempt.reason for attempt in found.attempts]


def test_exit_code_75_starts_the_app_again_and_is_no_failure(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh(until(2, 75)), requeue=True)
    assert found.state == AppState.SUCCEEDED
    assert lines(scheduler, found.app_id) == [
        "attempt 0 none\n",
        "attempt 1 requested\n",
        "attempt 2 requested\n",
    ]
    assert found.num_restarts == 2
    assert reasons(found) == ["requested", "requested", "succeeded"]
    assert [attempt.number for attempt in found.attempts] == [0, 1, 2]
    assert all(attempt.started and attempt.ended for attempt in found.attempts)


def test_detached_app_starts_again(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh(until(1, 75)), requeue=True, detach=True)
    assert found.state == AppState.SUCCEEDED
    assert reasons(found) == ["requested", "succeeded"]


def test_exit_code_75_is_a_failure_without_the_option(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh("echo ${TORCHX_ATTEMPT-none}; exit 75"))
    assert (found.state, found.attempts) == (AppState.FAILED, [])
    assert lines(scheduler, found.app_id) == ["none\n"]


@pytest.mark.parametrize("retries", [0, 1])
def test_failures_of_the_program_use_up_max_retries(
    scheduler: LocalScheduler, retries: int
) -> None:
    script = f"{SHOW}[ $TORCHX_ATTEMPT != 1 ] || exit 75; exit 7"
    found = run(scheduler, sh(script, max_retries=retries), requeue=True)
    assert found.state == AppState.FAILED
    assert reasons(found) == ["failed", "requested", "failed"][: retries * 2 + 1]
    assert "exit code 7" in found.msg


def test_all_replicas_of_all_roles_have_the_same_attempt(scheduler: LocalScheduler) -> None:
    first = f"[ ${{replica_id}} != 1 ] || {{ {until(1, 75)}; }}; {SHOW}"
    other = f'{SHOW}[ "$TORCHX_ATTEMPT" = 1 ] || exec sleep 1000'
    found = run(scheduler, sh(first, num_replicas=2), sh(other, "other"), requeue=True)
    assert found.state == AppState.SUCCEEDED
    for role, k in (("main", 0), ("main", 1), ("other", 0)):
        assert lines(scheduler, found.app_id, role, k)[-1] == "attempt 1 requested\n"


def test_sigterm_of_others_is_a_preemption(scheduler: LocalScheduler, tmp_path: Path) -> None:
    script = f"{SHOW}[ $TORCHX_ATTEMPT = 1 ] || {{ echo $$ > {tmp_path}/pid; exec sleep 1000; }}"
    app_id = submit(scheduler, sh(script), requeue=True)
    (pid,) = read_pids(tmp_path / "pid")
    os.kill(pid, 15)
    found = finish(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert reasons(found) == ["preempted", "succeeded"]
    assert lines(scheduler, app_id)[-1] == "attempt 1 preempted\n"


def test_time_limit_of_one_attempt_starts_the_next(scheduler: LocalScheduler) -> None:
    script = f"{SHOW}[ $TORCHX_ATTEMPT = 1 ] || exec sleep 1000"
    found = run(scheduler, sh(script), requeue=True, time="1s")
    assert found.state == AppState.SUCCEEDED
    assert reasons(found) == ["time-limit", "succeeded"]


def test_cancel_starts_no_further_attempt(scheduler: LocalScheduler, tmp_path: Path) -> None:
    script = f"trap 'exit 75' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.01; done"
    app_id = submit(scheduler, sh(script), requeue=True)
    read_pids(tmp_path / "pid")
    scheduler.cancel(app_id)
    found = finish(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert reasons(found) == ["cancelled"]


def test_further_exit_codes_start_the_app_again(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh(until(1, 3)), requeue=True, requeue_exit_codes=["3", "4"])
    assert reasons(found) == ["requested", "succeeded"]


@pytest.mark.parametrize("script", ["exit 75", "exec sleep 1000"])
def test_time_of_all_attempts_together_is_limited(scheduler: LocalScheduler, script: str) -> None:
    found = run(scheduler, sh(script), requeue=True, max_total_time="1s")
    assert found.state == AppState.FAILED
    expected = {"exit 75": {"requested", "time-limit"}, "exec sleep 1000": {"time-limit"}}
    assert set(reasons(found)) <= expected[script]
    assert "(option max_total_time)" in found.msg


@pytest.mark.parametrize(
    ("cfg", "problem"),
    [
        ({"max_total_time": "8h"}, "option max_total_time needs the option requeue or resume_dir"),
        ({"requeue": True, "max_total_time": "8"}, "option max_total_time: '8'"),
        ({"requeue": True, "max_node_failures": -1}, "option max_node_failures: -1 is negative"),
        ({"requeue": True, "requeue_exit_codes": ["256"]}, "'256' is not an exit code"),
    ],
)
def test_budgets_are_checked_before_submission(
    scheduler: LocalScheduler, cfg: dict[str, object], problem: str
) -> None:
    with pytest.raises(RequestError, match=problem):
        scheduler.submit_dryrun(AppDef("app", [sh("true")]), cfg)


def test_resume_folder_is_private_and_the_same_for_all_attempts(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = f"{COMMIT}echo $TORCHX_RESUME_DIR $TORCHX_STOP_GRACE; {until(1, 75)}"
    found = run(scheduler, sh(script), resume_dir="runs/${app_id}")
    folder = tmp_path / "runs" / found.app_id
    assert lines(scheduler, found.app_id)[::2] == [f"{folder} SIGTERM=10\n"] * 2
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    steps = [(attempt.resume_step, attempt.committed_step) for attempt in found.attempts]
    assert steps == [(None, 0), (0, 1)]


def test_three_attempts_without_progress_end_the_app(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    script = f"[ $TORCHX_ATTEMPT -ge 4 ] || {COMMIT} exit 75"
    found = run(scheduler, sh(script), resume_dir=f"{tmp_path}/resume")
    assert found.state == AppState.FAILED
    assert reasons(found) == ["requested"] * 7
    assert "3 attempts in a row have committed no new step" in found.msg


def test_request_of_a_rank_whose_launcher_loses_the_exit_code(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    mark = "$TORCHX_RESUME_DIR/attempts/$TORCHX_ATTEMPT.0"
    script = f"[ $TORCHX_ATTEMPT = 1 ] || {{ mkdir -p {mark}; touch {mark}/requeue; exit 1; }}"
    found = run(scheduler, sh(script), resume_dir=f"{tmp_path}/resume")
    assert reasons(found) == ["requested", "succeeded"]


def test_running_attempt_is_described(scheduler: LocalScheduler, tmp_path: Path) -> None:
    script = f"{COMMIT}[ $TORCHX_ATTEMPT = 1 ] || exit 75; echo $$ > {tmp_path}/pid; sleep 1000"
    app_id = submit(scheduler, sh(script), resume_dir=f"{tmp_path}/resume")
    read_pids(tmp_path / "pid")

    def second_attempt() -> DescribeAppResponse | None:
        found = scheduler.describe(app_id)
        return found if found and len(found.attempts) == 2 else None

    # The supervisor starts an attempt before it has written the end of the last one to the journal.
    found = wait_for(second_attempt)
    scheduler.cancel(app_id)
    assert found.state == AppState.RUNNING
    last = found.attempts[-1]
    assert last == AttemptStatus(1, last.started, None, None, 0, 1, (socket.gethostname(),))


@pytest.mark.parametrize("kind", ["file", "mode", "owner"])
def test_resume_folder_of_others_is_refused_before_submission(
    scheduler: LocalScheduler, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "resume"
    if kind == "file":
        path.touch()
    else:
        path.mkdir(mode=0o700)
    if kind == "mode":
        path.chmod(0o777)
    if kind == "owner":
        monkeypatch.setattr("torchx_kit.trust.own_ids", lambda: {os.getuid() + 1})
    with pytest.raises(RequestError, match=r"option resume_dir: '.*resume'"):
        scheduler.submit_dryrun(AppDef("app", [sh("true")]), {"resume_dir": str(path)})


def test_resume_folder_that_cannot_be_created_is_an_error(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match="option resume_dir: cannot create"):
        submit(scheduler, sh("true"), resume_dir=f"{tmp_path}/file/resume")


def test_elements_of_a_sweep_have_attempts_of_their_own(scheduler: LocalScheduler) -> None:
    def infos() -> Iterable[object]:
        for number in range(2):
            role = sh(until(number, 75))
            yield scheduler.submit_dryrun(AppDef(f"app-{number}", [role]), {"requeue": True})

    found = [finish(scheduler, app_id) for app_id in scheduler.app_arrays.submit(infos())]
    assert [reasons(app) for app in found] == [["succeeded"], ["requested", "succeeded"]]


def test_request_without_the_options_is_unchanged(scheduler: LocalScheduler) -> None:
    request = scheduler.submit_dryrun(AppDef("app", [Role("r", "", entrypoint="x")]), {}).request
    before = repr(request)
    add_attempts(request, {"requeue": False})
    assert repr(request) == before
    assert not [key for key in request.role_params["r"][0].env if "ATTEMPT" in key]
