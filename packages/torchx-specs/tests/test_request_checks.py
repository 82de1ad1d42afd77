"""Tests of the checks of a request, without a runner."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from torchx_specs import AppDef, AppDryRunInfo, RequestError, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.request_checks import RequestRules, variable_problems
from torchx_specs.workspace import WorkspaceMixin


class Plain(Scheduler[Any]):
    """A scheduler without rules of its own, as plugins for older releases are."""

    def __init__(self) -> None:
        super().__init__("plain", "s")
        self.calls: list[str] = []

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[Any]:
        self.calls.append("dryrun")
        return AppDryRunInfo(app.name, str)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        return "id"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return None

    def list(self, cfg: Any = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None: ...


class Strict(WorkspaceMixin[None], Plain):
    request_rules: ClassVar[RequestRules] = RequestRules(
        needs_entrypoint=True, needs_image=True, max_retries=9
    )
    features = SchedulerFeatures(not_utf8=No("X is JSON"))

    def _request_problems(self, app: AppDef, cfg: Any) -> list[str]:
        self.calls.append("own")
        return ["own"] if "own" in app else []

    def build_workspaces(self, roles: list[Role], cfg: Any) -> None:
        self.calls.append("build")


def problems_of(scheduler: Scheduler[Any], *roles: Role, name: str = "a") -> list[str]:
    with pytest.raises(RequestError) as caught:
        scheduler.submit_dryrun(AppDef(name, list(roles)), {})
    return list(caught.value.problems)


def test_each_text_that_the_api_cannot_carry_is_one_problem() -> None:
    env = {"A=B": "x", "C": "\0", "D": "\udcff"}
    role = Role("r\udcff", "a b", entrypoint="a\0", args=["ok", "\udcff"], env=env, max_retries=10)
    text = "contains bytes that are not UTF-8, which are refused: X is JSON"
    where = "role 'r\udcff':"
    assert problems_of(Strict(), role, role, name="\udcff") == [
        f"the app's name {text}",
        "2 roles are named 'r\udcff'; give each role its own name",
        *(
            f"{where} its name {text}",
            f"{where} entrypoint contains a NUL character",
            f"{where} image 'a b' contains a space or a control character",
            f"{where} max_retries is 10; the scheduler retries at most 9 times",
            f"{where} args[1] {text}",
            f"{where} env has 'A=B', which is not a valid variable name",
            f"{where} env['C'] contains a NUL character",
            f"{where} env['D'] {text}",
        )
        * 2,
    ]


def test_problems_of_the_scheduler_and_of_the_app_are_one_error() -> None:
    assert problems_of(Strict(), Role("own", "")) == [
        "role 'own': no entrypoint; set Role.entrypoint to the program to run",
        "role 'own': no image; set Role.image to the container image to run",
        "own",
    ]


def test_a_direct_call_requires_no_more_than_the_rules() -> None:
    """A role without an entrypoint and a resource is valid, as in older releases."""
    role = Role("r", "", args=["\udcff"])
    assert Plain().submit_dryrun(AppDef("a", [role]), {}).request == "a"
    assert problems_of(Plain(), Role("r", "", args=["\ud800"])) == [
        "role 'r': args[0] contains a lone surrogate, which no process can receive"
    ]


def test_submit_checks_once_and_before_the_build() -> None:
    scheduler = Strict()
    role = Role("own", "i", entrypoint="e", resource=Resource(1, 0, 1))
    with pytest.raises(RequestError, match="own"):
        scheduler.submit(AppDef("a", [role]), {}, workspace="/ws")
    assert scheduler.calls == ["own"]
    role.name = "r"
    scheduler.submit(AppDef("a", [role]), {}, workspace="/ws")
    assert scheduler.calls[1:] == ["own", "build", "dryrun"]


@pytest.mark.parametrize(("name", "valid"), [("A=1", True), ("=A", False), ("", False)])
def test_a_runner_corrects_names_that_contain_an_equals_sign(name: str, valid: bool) -> None:
    assert (not list(variable_problems(name, "x", splits=True))) is valid
    assert list(variable_problems(name, "x"))


@pytest.mark.parametrize("call", ["submit", "submit_dryrun"])
def test_data_that_is_nested_too_deeply_is_an_error(call: str) -> None:
    data: Any = {}
    for _ in range(1000):
        data = {"a": data}
    app = AppDef("a", [Role("r", "", resource=Resource(1, 0, 1, capabilities=data))], data)
    with pytest.raises(RequestError) as caught:
        getattr(Plain(), call)(app, {})
    deep = "nested deeper than 100 levels, or contains itself"
    assert caught.value.problems == (
        f"app 'a': metadata is {deep}",
        f"role 'r': resource is {deep}",
    )
