"""Tests of submitting many dry runs, and of cancelling many apps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs import AppDef, AppDryRunInfo, Resource, Role
from torchx_specs.errors import NotSupportedError, RequestError
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import SchedulerFeatures


class OneByOne(Scheduler[Any]):
    def __init__(self, name: str) -> None:
        super().__init__(name, "test")
        self.calls: list[object] = []

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[AppDef]:
        return AppDryRunInfo(app, str)

    def schedule(self, dryrun_info: AppDryRunInfo[AppDef]) -> str:
        self.calls.append(dryrun_info.request.name)
        return f"id-{dryrun_info.request.name}"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return None

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None:
        pass


class Together(Arrays["AllAtOnce"]):
    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[str]:
        self.scheduler.calls.append(max_parallel)
        return super().submit(dryrun_infos)

    def cancel(self, app_ids: Iterable[str]) -> None:
        self.scheduler.calls.append([*app_ids])


class AllAtOnce(OneByOne):
    features = SchedulerFeatures(arrays=True, array_limit=True, mass_cancel=True)

    @property
    def app_arrays(self) -> Together:
        return Together(self)


def apps() -> list[AppDef]:
    resource = Resource(cpu=1, gpu=0, memMB=1)
    role = Role("main", image="", entrypoint="true", resource=resource)
    return [AppDef(name, [role]) for name in "ab"]


@pytest.mark.parametrize(("kind", "calls"), [(OneByOne, ["a", "b"]), (AllAtOnce, [3, "a", "b"])])
def test_the_limit_reaches_a_scheduler_that_has_it(kind: type[OneByOne], calls: list[Any]) -> None:
    scheduler = kind("x")
    with Runner("s", {"x": lambda session_name, **kwargs: scheduler}) as runner:
        infos = [runner.dryrun(app, "x") for app in apps()]
        assert list(runner.schedule_many([])) == []
        has_limit = bool(runner.features("x").array_limit)
        assert has_limit is (kind is AllAtOnce)
        if not has_limit:
            with pytest.raises(NotSupportedError, match="limit how many of the apps"):
                list(runner.schedule_many(infos, 3))
        handles = list(runner.schedule_many(infos, 3 if has_limit else None))
        assert handles == ["x://s/id-a", "x://s/id-b"]
    assert scheduler.calls == calls


def test_dry_runs_for_several_schedulers_are_refused() -> None:
    factories = {name: lambda session_name, **kwargs: OneByOne("x") for name in ("x", "y")}
    with Runner("s", factories) as runner:
        infos = [runner.dryrun(app, name) for app, name in zip(apps(), "xy", strict=True)]
        with pytest.raises(RequestError, match="for one scheduler"):
            list(runner.schedule_many(infos))


def test_several_apps_are_cancelled_by_one_call_of_their_scheduler() -> None:
    scheduler = AllAtOnce("x")
    with Runner("s", {"x": lambda session_name, **kwargs: scheduler}) as runner:
        runner.cancel_many(["x://s/1", "x://s/2"])
    assert scheduler.calls == [["1", "2"]]
