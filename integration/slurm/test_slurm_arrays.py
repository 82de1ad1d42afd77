"""Arrays on a real Slurm: many apps by one sbatch, and the state of their tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import slurm as service
from slurm_jobs import (
    Cluster,
    app,
    every_release,
    wait_for,
    wait_until_forgotten,
    with_and_without_accounting,
)

from patience import wait_for as wait_until
from torchx_kit.batch.errors import LimitError
from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppDef, AppDryRunInfo, AppState
from torchx_specs.schedulers import ListAppResponse

Submit = Callable[..., list[str]]


def infos(
    scheduler: SlurmScheduler, apps: list[AppDef], **cfg: object
) -> list[AppDryRunInfo[object]]:
    return [scheduler.submit_dryrun(one, cfg) for one in apps]


def elements(count: int, line: str = "echo element $0", **attributes: object) -> list[AppDef]:
    return [app(line, str(i), name=f"e-{i}-0", **attributes) for i in range(count)]


@pytest.fixture
def sbatches(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[str]]:
    """Record the calls of sbatch; return a function that returns the arguments of each call."""
    return record_sbatches(tmp_path, monkeypatch)


def record_sbatches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    import shutil

    real, folder, calls = shutil.which("sbatch"), tmp_path / "programs", tmp_path / "calls"
    folder.mkdir()
    wrapper = folder / "sbatch"
    wrapper.write_text(f'#!/bin/sh\necho "$*" >> {calls}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: calls.read_text().splitlines() if calls.exists() else []


@every_release
class TestTasks:
    def test_many_apps_are_one_array_with_a_limit(
        self, scheduler: SlurmScheduler, sbatches: Callable[[], list[str]], work: Path
    ) -> None:
        apps = elements(7, 'echo "element $0 of $NAME"; exit $(($0 % 2))')
        for number, one in enumerate(apps):
            one.roles[0].env["NAME"] = f"it's\n{number}"
        ids = list(scheduler.app_arrays.submit(infos(scheduler, apps), max_parallel=3))
        (call,) = sbatches()
        assert "--array=0-6%3" in call
        number = ids[0].partition("_")[0]
        assert ids == [f"{number}_{i}" for i in range(7)]
        for i, app_id in enumerate(ids):
            found = wait_for(scheduler, app_id)
            assert found.state == (AppState.FAILED if i % 2 else AppState.SUCCEEDED)
            assert found.roles_statuses[0].replicas[0].exit_code == i % 2
            lines = list(scheduler.log_iter(app_id, "main"))
            assert lines == [f"element {i} of it's\n", f"{i}\n"]
        assert (work / f"slurm-{number}_3-main-0.out").exists()
        listed = {found.app_id: found for found in scheduler.list()}
        assert [listed[app_id].name for app_id in ids] == [f"e-{i}-0" for i in range(7)]
        assert [listed[app_id].state for app_id in ids[:2]] == [
            AppState.SUCCEEDED,
            AppState.FAILED,
        ]
        whole = scheduler.describe(number)
        assert whole is not None
        assert whole.state == AppState.FAILED
        assert "4 SUCCEEDED" in whole.msg
        assert scheduler.describe(f"{number}_7") is None

    def test_a_task_is_requeued_alone(self, scheduler: SlurmScheduler) -> None:
        apps = elements(2, "echo attempt; exit $0", max_retries=1)
        first, second = scheduler.app_arrays.submit(infos(scheduler, apps))
        found = wait_for(scheduler, second)
        assert (found.state, found.num_restarts) == (AppState.FAILED, 1)
        assert list(scheduler.log_iter(second, "main")) == ["attempt\n"] * 2
        found = wait_for(scheduler, first)
        assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 0)

    def test_one_task_is_cancelled_and_deleted(self, scheduler: SlurmScheduler) -> None:
        first, second, third = scheduler.app_arrays.submit(
            infos(scheduler, elements(3, "sleep 86400")), max_parallel=2
        )
        wait_for(scheduler, first, AppState.RUNNING)
        pending = scheduler.describe(third)
        assert pending is not None
        assert pending.state == AppState.PENDING
        scheduler.cancel(first)
        assert wait_for(scheduler, first).state == AppState.CANCELLED
        wait_for(scheduler, third, AppState.RUNNING)
        scheduler.delete(second)
        assert scheduler.describe(second) is None
        listed = [found.app_id for found in scheduler.list()]
        assert second not in listed
        assert {first, third} <= set(listed)
        scheduler.cancel(third.partition("_")[0])
        assert wait_for(scheduler, third).state == AppState.CANCELLED

    def test_tasks_cancelled_while_they_start_stay_cancelled(
        self, scheduler: SlurmScheduler, cluster: Cluster, work: Path
    ) -> None:
        ids = list(scheduler.app_arrays.submit(infos(scheduler, elements(6, "sleep 86400"))))
        wait_until(lambda: any(work.glob(".torchx-slurm/*/*/started")), pause=0.005)
        scheduler.app_arrays.cancel(ids)
        wait_until_forgotten(cluster, ids[0].partition("_")[0])
        listed = {found.app_id: found.state for found in create_scheduler("test").list()}
        assert {listed[app_id] for app_id in ids} == {AppState.CANCELLED}

    def test_an_array_is_deleted_with_its_files_and_has_one_entry(
        self, scheduler: SlurmScheduler, tmp_path: Path, work: Path
    ) -> None:
        ids = list(scheduler.app_arrays.submit(infos(scheduler, elements(6))))
        other = scheduler.submit(app("true"), {})
        for app_id in (*ids, other):
            wait_for(scheduler, app_id)
        scheduler.delete(ids[2])
        assert list(work.glob("slurm-*"))
        scheduler.app_arrays.delete([*ids[:2], *ids[3:], other])
        assert list(work.iterdir()) == []
        index = tmp_path / "torchx" / "slurm" / "apps"
        number = ids[0].partition("_")[0]
        assert sorted(path.name for path in index.iterdir()) == sorted(
            [f"{number}.json", f"{other}.json"]
        )
        assert [scheduler.describe(app_id) for app_id in (*ids, number, other)] == [None] * 8
        listed = {found.app_id for found in scheduler.list()}  # the queue has jobs of other tests
        assert not listed & {*ids, number, other}

    def test_a_task_whose_end_slurm_has_forgotten(
        self, scheduler: SlurmScheduler, cluster: Cluster
    ) -> None:
        ok, failed = scheduler.app_arrays.submit(infos(scheduler, elements(2, "exit $0")))
        for app_id in (ok, failed):
            wait_until_forgotten(cluster, app_id)
        scheduler = create_scheduler("test")
        states = [found and found.state for found in map(scheduler.describe, (ok, failed))]
        assert states == [AppState.SUCCEEDED, AppState.FAILED]
        listed = {found.app_id: found.state for found in scheduler.list()}
        assert [listed[ok], listed[failed]] == states


@pytest.mark.gate
@with_and_without_accounting
def test_a_task_that_the_index_lacks_is_listed_and_has_its_roles(
    scheduler: SlurmScheduler,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    apps = elements(3, "[ $0 = 1 ] || sleep 86400")
    ids = list(scheduler.app_arrays.submit(infos(scheduler, apps)))
    wait_until_forgotten(cluster, ids[1])
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "empty"))
    other = create_scheduler("test")
    found = other.describe(ids[2])
    assert found is not None
    assert [role.name for role in found.roles] == ["main"]
    number = ids[0].partition("_")[0]
    listed = {one.app_id: one for one in other.list() if one.app_id.startswith(number)}
    assert {one.app_id: one.name for one in listed.values()} == {
        app_id: app.name for app_id, app in zip(ids, apps, strict=True)
    }
    assert listed[ids[1]].state == AppState.SUCCEEDED
    assert listed[ids[2]].state != AppState.SUCCEEDED
    other.cancel(number)


@pytest.mark.parametrize("count", [1, 3])
def test_jobs_of_a_killed_client_are_listed_after_slurm_has_forgotten_them(
    scheduler: SlurmScheduler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    class Killed(BaseException):
        pass

    def kill(entry: object) -> None:
        raise Killed

    apps = elements(count)
    for i, one in enumerate(apps):
        one.name = f"killed-{count}-{i}"
    monkeypatch.setattr(scheduler._index, "confirm", kill)
    with pytest.raises(Killed):
        list(scheduler.app_arrays.submit(infos(scheduler, apps)))

    def listed() -> dict[str, ListAppResponse]:
        found = {one.name: one for one in create_scheduler("test").list()}
        return {one.name: found[one.name] for one in apps}

    (number,) = {found.app_id.partition("_")[0] for found in listed().values()}
    wait_until_forgotten(cluster, number)
    for found in listed().values():
        assert found.state == AppState.SUCCEEDED
        described = create_scheduler("test").describe(found.app_id)
        assert described is not None
        assert described.state == AppState.SUCCEEDED


class TestLimits:
    @pytest.fixture
    def small(
        self, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[SlurmScheduler]:
        """Yield a scheduler for a cluster whose arrays have at most 4 tasks."""
        folder = tmp_path / "own"
        variables = service.start(folder, nodes=2, settings="MaxArraySize=4")
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        scheduler = create_scheduler("test")
        yield scheduler
        scheduler.close()
        service.stop(folder)

    def test_an_array_that_is_too_large_is_split(
        self, small: SlurmScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = record_sbatches(tmp_path, monkeypatch)
        ids = list(small.app_arrays.submit(infos(small, elements(10)), max_parallel=2))
        numbers = list(dict.fromkeys(app_id.partition("_")[0] for app_id in ids))
        options = [" ".join(w for w in call.split() if "ar" in w or "dep" in w) for call in calls()]
        assert [o.split(" --chdir")[0] for o in options] == [
            "--parsable --array=0-3%1",
            "--parsable --array=0-3%1",
            f"--parsable --array=0-1%1 --dependency=afterany:{numbers[0]}",
        ]
        assert len(set(ids)) == 10
        for i, app_id in enumerate(ids):
            assert wait_for(small, app_id).state == AppState.SUCCEEDED
            assert list(small.log_iter(app_id, "main")) == [f"element {i}\n"]

    @pytest.mark.parametrize("cluster", ["accounting"], indirect=True)
    def test_the_limit_of_submitted_jobs_holds_the_others_back(
        self, scheduler: SlurmScheduler
    ) -> None:
        ids: list[str] = []
        requests = infos(scheduler, elements(6, "sleep 86400"), account="research", qos="few")
        submission = scheduler.app_arrays.submit(requests)
        with pytest.raises(LimitError, match="QOSMaxSubmitJobPerUserLimit"):
            ids.extend(submission)
        assert len(ids) == 4
        scheduler.cancel(ids[0].partition("_")[0])
        for app_id in ids:
            scheduler.cancel(app_id)
