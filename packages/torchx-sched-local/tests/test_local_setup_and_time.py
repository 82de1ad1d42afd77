"""Tests of the options ``setup`` and ``time``, and of the variables of replicas."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_helpers import finish, is_running, lines, read_pids, run, sh, submit

from torchx_sched_local.scheduler import LocalScheduler, create_scheduler
from torchx_specs import AppDef, AppState, RetryPolicy
from torchx_specs.errors import RequestError


def test_setup_lines_run_in_the_shell_that_becomes_the_program(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    (tmp_path / "env.sh").write_text('FROM_FILE="$# $1"\n')
    setup = [f"source {tmp_path}/env.sh", "export FROM_FILE PID=$$", f"cd {tmp_path}"]
    app_id = submit(
        scheduler, sh('echo "$FROM_FILE|$PWD|$((PID == $$))|$0"', num_replicas=2), setup=setup
    )
    assert finish(scheduler, app_id).state == AppState.SUCCEEDED
    assert lines(scheduler, app_id, k=1) == [f"0 |{tmp_path}|1|sh\n"]


@pytest.mark.parametrize(("line", "code"), [("(exit 3)", 3), ("exit 0", 1), ("no-such-tool", 127)])
@pytest.mark.parametrize("detach", [False, True])
def test_replica_fails_if_a_setup_line_fails(
    scheduler: LocalScheduler, line: str, code: int, detach: bool
) -> None:
    app_id = submit(scheduler, sh("echo never"), setup=["true", line], detach=detach)
    found = finish(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert found.roles_statuses[0].replicas[0].exit_code == code
    assert lines(scheduler, app_id)[-1] == f"setup failed with exit code {code}\n"


@pytest.mark.parametrize("detach", [False, True])
def test_replica_fails_at_its_time_limit(
    scheduler: LocalScheduler, tmp_path: Path, detach: bool
) -> None:
    script = f"sleep 5555 & echo $! > {tmp_path}/pid; wait"
    app_id = submit(scheduler, sh(script), sh("true", "other"), time="500ms", detach=detach)
    found = finish(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert found.msg == "main/0: time limit of 0.5 s reached (option time)"
    assert create_scheduler("other").describe(app_id).state == AppState.FAILED
    assert [s.replicas[0].state for s in found.roles_statuses] == [
        AppState.FAILED,
        AppState.SUCCEEDED,
    ]
    [pid] = read_pids(tmp_path / "pid")
    assert not is_running(pid)


def test_each_retry_has_the_whole_time(scheduler: LocalScheduler) -> None:
    policy = {"max_retries": 1, "retry_policy": RetryPolicy.REPLICA}
    script = 'echo "attempt $TORCHX_RESTART_COUNT"; [ $TORCHX_RESTART_COUNT = 1 ] || sleep 5555'
    found = run(scheduler, sh(script, **policy), time="1s")
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)


def test_each_element_of_an_array_has_a_time_limit(scheduler: LocalScheduler) -> None:
    infos = [
        scheduler.submit_dryrun(
            AppDef(f"app-{k}", [sh(f"sleep {5555 * (k == 0)}")]), {"time": "1s"}
        )
        for k in range(4)
    ]
    first, *others = scheduler.app_arrays.submit(infos, 1)
    assert finish(scheduler, first).state == AppState.FAILED
    assert "time limit" in finish(scheduler, first).msg
    assert [finish(scheduler, app_id).state for app_id in others] == [AppState.SUCCEEDED] * 3


@pytest.mark.parametrize("text", ["90", "1:30", "soon", "0s", "-1h"])
def test_time_without_a_unit_is_refused(scheduler: LocalScheduler, text: str) -> None:
    with pytest.raises(RequestError, match=f"option time: '{text}' is not a time limit; write a"):
        scheduler.submit_dryrun(AppDef("app", [sh("true")]), {"time": text})


def test_replicas_know_their_index(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("echo $TORCHX_REPLICA_ID", num_replicas=2))
    finish(scheduler, app_id)
    assert [lines(scheduler, app_id, k=k) for k in range(2)] == [["0\n"], ["1\n"]]
