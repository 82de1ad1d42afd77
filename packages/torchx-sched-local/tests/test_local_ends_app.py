"""Tests of roles whose success ends the app: a server and its client, a head and its driver."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_helpers import run, sh

from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs import AppState, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.schedulers import DescribeAppResponse

SERVE = "echo serving; exec sleep 86400"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def deciding(role: Role) -> Role:
    role.metadata[ENDS_APP_KEY] = True
    return role


def states(found: DescribeAppResponse) -> dict[str, set[AppState]]:
    return {role.role: {r.state for r in role.replicas} for role in found.roles_statuses}


@pytest.mark.parametrize("cfg", [{}, {"detach": True}], ids=["attached", "detached"])
def test_success_of_a_client_stops_the_servers_which_count_as_done(
    scheduler: LocalScheduler, cfg: dict[str, bool]
) -> None:
    client = deciding(sh("exit 0", "client", num_replicas=2))
    found = run(scheduler, sh(SERVE, "server", num_replicas=2), client, **cfg)
    assert found.state == AppState.SUCCEEDED
    assert states(found) == {"server": {AppState.SUCCEEDED}, "client": {AppState.SUCCEEDED}}
    [server, _] = found.roles_statuses
    assert {r.reason for r in server.replicas} == {"stopped after the success of client"}


def test_a_failure_of_the_others_before_it_counts(scheduler: LocalScheduler) -> None:
    # The worker's process exists until the supervisor has its exit code.
    ended = 'pid=$(cat pid 2>&-) && [ "$pid" ] && ! kill -0 "$pid" 2>&-'
    driver = deciding(sh(f"until {ended}; do sleep 0.05; done", "driver"))
    worker = sh("echo $$ > pid; exit 3", "worker")
    found = run(scheduler, worker, sh(SERVE, "server"), driver)
    assert found.state == AppState.FAILED
    assert states(found)["server"] == {AppState.SUCCEEDED}
    assert "worker/0: exit code 3" in found.msg


def test_all_marked_roles_must_succeed(scheduler: LocalScheduler) -> None:
    first = deciding(sh("touch first", "first"))
    second = deciding(sh("until [ -e first ]; do sleep 0.05; done; touch second", "second"))
    server = sh("trap 'ls second > seen; exit' TERM; while :; do sleep 0.05; done", "server")
    found = run(scheduler, server, first, second)
    assert found.state == AppState.SUCCEEDED
    with open("seen") as file:
        assert file.read() == "second\n"


def test_failure_of_a_marked_role_is_retried_first(scheduler: LocalScheduler) -> None:
    client = deciding(sh("[ $TORCHX_RESTART_COUNT -ge 1 ]", "client", max_retries=1))
    found = run(scheduler, sh(SERVE, "server"), client)
    assert found.state == AppState.SUCCEEDED
    assert found.num_restarts == 1
