"""Tests of retry policies."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, is_running, lines, run, sh, submit

from patience import wait_for
from torchx_sched_local.scheduler import CWDImageProvider, LocalScheduler, create_scheduler
from torchx_specs import AppState, RetryPolicy, Role
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.logs import LogQuery

# This script fails until TORCHX_RESTART_COUNT has reached the number that replaces %d.
AT_ATTEMPT = "echo attempt $TORCHX_RESTART_COUNT; [ $TORCHX_RESTART_COUNT -ge %d ] || exit 7"


def starts(scheduler: LocalScheduler, app_id: str, role: str = "main", k: int = 0) -> int:
    return sum("attempt" in line for line in lines(scheduler, app_id, role, k))


def test_replica_policy_restarts_only_that_replica(scheduler: LocalScheduler) -> None:
    script = f"if [ ${{replica_id}} = 1 ]; then {AT_ATTEMPT % 1}; else echo attempt; fi"
    role = sh(script, num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    found = run(scheduler, role)
    assert found.state == AppState.SUCCEEDED
    assert [r.restarts for r in found.roles_statuses[0].replicas] == [0, 1]
    assert starts(scheduler, found.app_id, k=0) == 1


def test_role_policy_restarts_the_role(scheduler: LocalScheduler) -> None:
    script = f"if [ ${{replica_id}} = 1 ]; then {AT_ATTEMPT % 1}; else echo attempt; fi"
    role = sh(script, num_replicas=2, max_retries=1, retry_policy=RetryPolicy.ROLE)
    found = run(scheduler, role, sh("echo attempt", "other"))
    assert found.state == AppState.SUCCEEDED
    assert [r.restarts for r in found.roles_statuses[0].replicas] == [1, 1]
    assert starts(scheduler, found.app_id, "other") == 1


def test_application_policy_restarts_every_role(scheduler: LocalScheduler) -> None:
    other = sh('echo attempt; [ "$TORCHX_RESTART_COUNT" = 1 ] || exec sleep 100', "other")
    found = run(scheduler, sh(f"sleep 0.1; {AT_ATTEMPT % 1}", max_retries=1), other)
    assert found.state == AppState.SUCCEEDED
    assert found.num_restarts == 1
    assert starts(scheduler, found.app_id, "other") == 2


def test_each_replica_has_its_own_retries(scheduler: LocalScheduler) -> None:
    role = sh(AT_ATTEMPT % 2, num_replicas=3, max_retries=2, retry_policy=RetryPolicy.REPLICA)
    found = run(scheduler, role)
    assert found.state == AppState.SUCCEEDED
    assert [r.restarts for r in found.roles_statuses[0].replicas] == [2, 2, 2]


def test_descendants_of_an_attempt_end_before_the_next_attempt(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    script = (
        f"[ ! -e {tmp_path}/alive ] || {{ echo still there; exit 0; }}; "
        f'setsid sh -c \'trap "rm {tmp_path}/alive; exit" TERM; touch {tmp_path}/alive;'
        " while :; do sleep 0.01; done' 2>/dev/null & "
        f"until [ -e {tmp_path}/alive ]; do sleep 0.01; done; "
        f"{AT_ATTEMPT % 1}"
    )
    found = run(scheduler, sh(script, max_retries=1))
    assert found.state == AppState.SUCCEEDED
    assert lines(scheduler, found.app_id) == ["attempt 0\n", "attempt 1\n"]


def test_incomplete_last_line_of_an_attempt_is_completed(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh('printf "a%s" $TORCHX_RESTART_COUNT; exit 1', max_retries=2))
    assert lines(scheduler, found.app_id) == ["a0\n", "a1\n", "a2"]


@pytest.mark.parametrize("stream", [None, Stream.STDOUT])
@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("is_attached", [True, False])
def test_log_has_marks_where_attempts_begin(
    scheduler: LocalScheduler, is_attached: bool, is_followed: bool, stream: Stream | None
) -> None:
    script = 'echo begin; echo err >&2; printf "a%s" $TORCHX_RESTART_COUNT; exit 1'
    role = sh(script, max_retries=2)
    app_id = submit(scheduler, role, detach=not is_attached)
    query = LogQuery(attempts=True, partial=True, should_tail=is_followed, streams=stream)
    if not is_followed:
        finish(scheduler, app_id)
    text = "".join(scheduler.app_logs.read(app_id, "main", 0, query))
    finish(scheduler, app_id)
    attempts = re.split(r"--- attempt (\d) ---\n", text)
    assert attempts[1::2] == ["2", "3"]
    others = [] if stream else ["err"]
    for number, part in enumerate(attempts[::2]):
        assert sorted(part.splitlines()) == sorted(["begin", f"a{number}", *others])
    marks = [
        line
        for line in scheduler.app_logs.read(app_id, "main", 0, query._replace(should_tail=False))
        if "---" in line
    ]
    assert marks == ["--- attempt 2 ---\n", "--- attempt 3 ---\n"]
    last = query._replace(should_tail=False, last=1)
    assert list(scheduler.app_logs.read(app_id, "main", 0, last)) == ["a2"]
    assert not any("---" in line for line in lines(scheduler, app_id, streams=stream))
    regex = query._replace(should_tail=False, regex="a")
    found = list(scheduler.app_logs.read(app_id, "main", 0, regex))
    assert found == ["a0\n", "a1\n", "a2"]


def test_log_of_one_attempt_has_no_mark(scheduler: LocalScheduler) -> None:
    found = run(scheduler, sh("echo a", max_retries=2))
    query = LogQuery(attempts=True)
    assert list(scheduler.app_logs.read(found.app_id, "main", 0, query)) == ["a\n"]


def test_error_file_of_an_attempt_is_renamed(scheduler: LocalScheduler) -> None:
    script = (
        'echo \'{"message": 1}\' > "$TORCHELASTIC_ERROR_FILE"; '
        f'{AT_ATTEMPT % 1}; rm "$TORCHELASTIC_ERROR_FILE"'
    )
    found = run(scheduler, sh(script, max_retries=1))
    assert found.state == AppState.SUCCEEDED
    assert found.structured_error_msg == "<NONE>"
    folder = Path(scheduler.describe_native(found.app_id).request.role_log_dirs["main"][0])
    assert json.loads((folder / "error.attempt0.json").read_text()) == {"message": 1}


def test_cancelled_app_is_not_restarted(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("sleep 100", max_retries=5))
    scheduler.cancel(app_id)
    found = finish(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert found.num_restarts == 0


def test_cancel_between_attempts_ends_the_app(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("exit 1", max_retries=10**6, retry_policy=RetryPolicy.REPLICA))
    wait_for(lambda: scheduler.describe(app_id).num_restarts > 3)
    scheduler.cancel(app_id)
    assert scheduler.describe(app_id).state == AppState.CANCELLED


def test_app_whose_supervisor_is_killed_between_two_attempts_says_so(
    home: Path, launcher: Callable[..., subprocess.Popen[str]]
) -> None:
    code = """
import os, signal
from torchx_sched_local.scheduler import create_scheduler
from torchx_sched_local.supervise.supervision import Supervision
import torchx_specs as specs
def die_at_a_restart(self, replica):
    if replica.restarts >= 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return 0
Supervision.begin_attempt = die_at_a_restart
scheduler = create_scheduler("launcher")
role = specs.Role("main", image="", entrypoint="sh", args=["-c", "exit 7"], max_retries=3)
scheduler.wait(scheduler.schedule(scheduler.submit_dryrun(specs.AppDef("app", [role]), {})))
"""
    process = launcher(code)
    process.wait(120)
    other = create_scheduler("other")
    [app] = other.list()
    found = finish(other, app.app_id)
    assert (found.state, found.num_restarts) == (AppState.FAILED, 0)
    assert found.msg == (
        f"main/0: exit code 7; its supervisor (process {process.pid}) was killed, so that it"
        " is not restarted"
    )


def test_program_that_was_deleted_is_not_restarted_forever(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0; exit 1\n")
    program.chmod(0o755)
    role = Role("main", image="", entrypoint=str(program), max_retries=5)
    found = run(scheduler, role)
    assert found.state == AppState.FAILED
    assert found.msg == f"main/0: cannot run '{program}': No such file or directory"


@pytest.mark.parametrize("policy", list(RetryPolicy))
def test_fail_together_applies_after_the_last_retry(
    scheduler: LocalScheduler, policy: RetryPolicy
) -> None:
    role = sh(AT_ATTEMPT % 9, "bad", max_retries=1, retry_policy=policy)
    found = run(scheduler, role, sh("sleep 100"), fail_together=True)
    assert found.state == AppState.FAILED
    assert found.num_restarts == 1
    assert found.roles_statuses[1].replicas[0].state == AppState.CANCELLED


class BadEndsAtOnce(LocalScheduler):
    """Records the start of the role ``bad`` only after its end, as happens on a busy machine."""

    def _popen(self, role_name: str, replica_id: int, replica_params: Any) -> Any:
        replica = super()._popen(role_name, replica_id, replica_params)
        if role_name == "bad":
            os.waitid(os.P_PID, replica.proc.pid, os.WEXITED | os.WNOWAIT)
        return replica


@pytest.fixture
def at_once() -> Iterator[BadEndsAtOnce]:
    scheduler = BadEndsAtOnce("test", CWDImageProvider)
    yield scheduler
    scheduler.close()


@pytest.mark.parametrize("retries", [1, 3])
def test_replica_that_fails_during_a_restart_of_others(
    at_once: BadEndsAtOnce, tmp_path: Path, retries: int
) -> None:
    bad = sh(AT_ATTEMPT % 9, "bad", max_retries=retries)
    pids = tmp_path / "pids"
    pids.touch()  # a replica may be ended before it writes its pid
    other = sh(f"echo $$ >> {pids}; exec sleep 5555", "other")
    found = run(at_once, bad, other, fail_together=True)
    assert found.state == AppState.FAILED
    assert found.num_restarts == retries
    last = found.roles_statuses[1].replicas[0]
    assert (last.state, last.restarts) == (AppState.CANCELLED, retries)
    assert not any(map(is_running, map(int, pids.read_text().split())))


def test_many_retries_of_a_replica_that_fails_at_once(at_once: BadEndsAtOnce) -> None:
    found = run(at_once, sh("exit 1", "bad", max_retries=400))
    assert (found.state, found.num_restarts) == (AppState.FAILED, 400)
