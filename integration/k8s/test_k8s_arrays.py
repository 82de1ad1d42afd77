"""Tests of apps that become indexes of one Indexed Job, on the double of Kubernetes."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest
from k8s_apps import running, shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s import arrays, submit
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import CapacityError

CFG: dict[str, Any] = {"namespace": "default", "image_pull_policy": "IfNotPresent"}
SUCCEEDED, FAILED, CANCELLED = AppState.SUCCEEDED, AppState.FAILED, AppState.CANCELLED


def dryruns(
    scheduler: KubernetesScheduler, roles: Sequence[Role], cfg: dict[str, Any] | None = None
) -> list[Any]:
    """Return the dry runs of apps of one role each; the apps' names are ``n-0``, ``n-1``..."""
    apps = [AppDef(f"n-{i}", [role]) for i, role in enumerate(roles)]
    return [scheduler.submit_dryrun(app, {**CFG, **(cfg or {})}) for app in apps]


def jobs(scheduler: KubernetesScheduler) -> list[dict[str, Any]]:
    path = "/apis/batch/v1/namespaces/default/jobs"
    return list(scheduler._cluster_of(None).list_items(path, "list the jobs"))


def ended(scheduler: KubernetesScheduler, app_id: str) -> AppState:
    return described(scheduler, app_id).state


def lines(scheduler: KubernetesScheduler, app_id: str) -> list[str]:
    return [line.rstrip("\n") for line in scheduler.log_iter(app_id, "main", 0)]


def test_apps_become_one_job_with_arguments_and_variables_by_index(
    scheduler: KubernetesScheduler,
) -> None:
    script = 'echo "$0|$V|$W|${app_id}|$TORCHX_REPLICA_ID|${replica_id}"; exit $((V == 1))'
    odd = ['it\'s $(V) $$ \n"é"', "*", ""]
    roles = []
    for i, text in enumerate(odd):
        role = shell(script, env={"V": str(i), "W": "$(HOME) $$"})
        role.args.append(text)
        roles.append(role)
    app_ids = list(scheduler.app_arrays.submit(dryruns(scheduler, roles)))
    (job,) = jobs(scheduler)
    assert job["spec"]["completions"] == 3
    assert [ended(scheduler, app_id) for app_id in app_ids] == [SUCCEEDED, FAILED, SUCCEEDED]
    for i, app_id in enumerate(app_ids):
        own = app_id.partition(":")[2]
        expected = f"{odd[i]}|{i}|$(HOME) $$|{own}|0|0".split("\n")
        assert lines(scheduler, app_id) == expected
    listed = {app.app_id: app for app in scheduler.list(CFG)}
    assert {app_id: listed[app_id].name for app_id in app_ids} == {
        app_id: f"n-{i}" for i, app_id in enumerate(app_ids)
    }
    found = scheduler.describe(app_ids[1])
    assert found is not None
    assert found.roles_statuses[0].replicas[0].exit_code == 1
    assert found.roles[0].num_replicas == 1
    assert scheduler.describe(app_ids[0] + "0") is None


def test_the_limit_is_the_parallelism_of_the_job(scheduler: KubernetesScheduler) -> None:
    roles = [shell(f"sleep 86400 # {i}") for i in range(4)]
    app_ids = list(scheduler.app_arrays.submit(dryruns(scheduler, roles), max_parallel=2))
    (job,) = jobs(scheduler)
    assert job["spec"]["parallelism"] == 2

    def states() -> list[AppState]:
        found = {app.app_id: app.state for app in scheduler.list(CFG)}
        return [found[app_id] for app_id in app_ids]

    wait_for(lambda: states() == [AppState.RUNNING] * 2 + [AppState.PENDING] * 2)
    waiting = scheduler.describe(app_ids[3])
    assert waiting is not None
    assert waiting.state == AppState.PENDING


def test_one_element_is_cancelled_alone_whether_it_runs_or_waits(
    scheduler: KubernetesScheduler,
) -> None:
    roles = [shell(f"echo started; sleep {seconds}") for seconds in (300, 0.5, 300, 0)]
    app_ids = list(scheduler.app_arrays.submit(dryruns(scheduler, roles), max_parallel=2))
    described(scheduler, app_ids[0], running)
    scheduler.cancel(app_ids[2])  # this element waits, or has just started
    scheduler.cancel(app_ids[0])
    assert [ended(scheduler, app_id) for app_id in app_ids] == [
        CANCELLED,
        SUCCEEDED,
        CANCELLED,
        SUCCEEDED,
    ]
    scheduler.cancel(app_ids[1])
    assert ended(scheduler, app_ids[1]) == SUCCEEDED
    assert {app.state for app in scheduler.list(CFG) if app.app_id == app_ids[0]} == {CANCELLED}


def test_cancel_of_all_elements_suspends_the_job_and_delete_removes_it(
    scheduler: KubernetesScheduler,
) -> None:
    app_ids = list(scheduler.app_arrays.submit(dryruns(scheduler, [shell("sleep 86400")] * 3)))
    for app_id in app_ids:
        scheduler.cancel(app_id)
    assert {ended(scheduler, app_id) for app_id in app_ids} == {CANCELLED}
    (job,) = jobs(scheduler)
    assert job["spec"]["suspend"] is True
    scheduler.delete(app_ids[0])
    assert scheduler.describe(app_ids[0]) is None
    assert not scheduler.exists(app_ids[0])
    assert [app.app_id for app in scheduler.list(CFG)] == app_ids[1:]
    for app_id in app_ids[1:]:
        scheduler.delete(app_id)
    assert jobs(scheduler) == []


def test_many_or_large_apps_become_several_jobs_that_share_the_limit(
    scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MOST_ELEMENTS", 2)
    roles = [shell(f"exit {i}") for i in range(5)]
    list(scheduler.app_arrays.submit(dryruns(scheduler, roles), max_parallel=4))
    assert sorted(job["spec"]["completions"] for job in jobs(scheduler)) == [1, 2, 2]
    assert sum(job["spec"]["parallelism"] for job in jobs(scheduler)) == 4
    submitted = scheduler.app_arrays.submit(dryruns(scheduler, roles), max_parallel=2)
    assert len([next(submitted) for _ in range(4)]) == 4
    with pytest.raises(CapacityError, match="1 apps need more Jobs than max_parallel=2"):
        next(submitted)
    monkeypatch.setattr(arrays, "MOST_ELEMENTS", 1000)
    large = [shell(f"# {i} {'x' * 300_000}") for i in range(4)]
    found = [arrays.element_of(info.request) for info in dryruns(scheduler, large)]
    counts = [count for _, count in arrays.make_arrays([e for e in found if e], "default")]
    assert counts == [1, 1, 1, 1]


def test_a_failed_element_is_retried_without_ending_the_others(
    scheduler: KubernetesScheduler, tmp_path: Any
) -> None:
    script = 'echo x >> {}/$0; [ "$(wc -l < {}/$0)" -gt 1 ]'.replace("{}", str(tmp_path))
    roles = [shell(script, max_retries=1) for _ in range(2)]
    for i, role in enumerate(roles):
        role.args.append(f"f{i}")
    app_ids = list(scheduler.app_arrays.submit(dryruns(scheduler, roles)))
    assert [ended(scheduler, app_id) for app_id in app_ids] == [SUCCEEDED] * 2
    assert (tmp_path / "f0").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("roles", "cfg"),
    [
        ([shell("true"), shell("true", num_replicas=2)], {}),
        ([shell("true"), shell("true", image="local/python:3.11")], {}),
        ([shell("true"), shell("true", env={"A.B": "1"})], {}),
        ([shell("true"), shell("true")], {"array": False}),
        ([shell("true"), shell("true")], {"queue": "q", "job_api": "batch"}),
    ],
)
def test_other_apps_are_submitted_one_after_the_other(
    scheduler: KubernetesScheduler, roles: list[Role], cfg: dict[str, Any]
) -> None:
    app_ids = list(scheduler.app_arrays.submit(dryruns(scheduler, roles, cfg)))
    assert len(app_ids) == len(jobs(scheduler)) == 2
    assert not any("." in app_id for app_id in app_ids)


def test_the_limit_holds_for_apps_that_cannot_become_indexes(
    scheduler: KubernetesScheduler,
) -> None:
    roles = [shell("true", num_replicas=2)] * 3
    submitted = scheduler.app_arrays.submit(dryruns(scheduler, roles), max_parallel=2)
    assert len([next(submitted) for _ in range(2)]) == 2
    with pytest.raises(CapacityError, match="1 apps would exceed max_parallel=2"):
        next(submitted)


def test_an_interrupted_submission_has_no_elements_so_that_it_is_repeated(
    scheduler: KubernetesScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos, start = dryruns(scheduler, [shell("exit 0"), shell("true")]), submit._Submission._start

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr("torchx_sched_k8s.submit._Submission._start", die)
    child = os.fork()
    if child == 0:
        list(scheduler.app_arrays.submit(infos))
        os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    monkeypatch.setattr("torchx_sched_k8s.submit._Submission._start", start)
    assert len(jobs(scheduler)) == 1
    assert scheduler.list(CFG) == []
    app_ids = list(
        scheduler.app_arrays.submit(dryruns(scheduler, [shell("exit 0"), shell("true")]))
    )
    assert [ended(scheduler, app_id) for app_id in app_ids] == [SUCCEEDED] * 2
    assert len(jobs(scheduler)) == 1


def test_without_the_right_to_create_config_maps_each_app_is_a_job(
    scheduler: KubernetesScheduler, double: Double, caplog: pytest.LogCaptureFixture
) -> None:
    double.deny("create", "configmaps")
    app_ids = list(
        scheduler.app_arrays.submit(dryruns(scheduler, [shell("true"), shell("exit 0")]))
    )
    assert len(jobs(scheduler)) == 2
    assert [ended(scheduler, app_id) for app_id in app_ids] == [SUCCEEDED] * 2
    assert "without this right" in caplog.text
