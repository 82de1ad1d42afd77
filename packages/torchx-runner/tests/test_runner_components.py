"""Tests of submitting components: arguments, defaults, errors, a sweep without its package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs import (
    ComponentArgumentError,
    ComponentError,
    ComponentNotFoundException,
    ComponentTypeError,
    ComponentValidationException,
    RequestError,
)

COMPONENTS = """
import sys
from typing import Union
from torchx_specs import AppDef, Resource, Role

def greet(msg: str, times: int = 1, *rest: str) -> AppDef:
    role = Role("main", "img", entrypoint="echo", args=[msg] * times + list(rest),
                resource=Resource(1, 0, 1))
    return AppDef("greet", [role])

def refuses(x: int = 0) -> AppDef:
    raise ValueError("not with me")

def exits(code: Union[int, str] = 3) -> AppDef:
    sys.exit(code)

def returns_none() -> AppDef:
    pass

def bare(x) -> AppDef:
    return AppDef("x")

class Greeter:
    def __init__(self, msg: str = "from a class"):
        self.msg = msg

    def build(self) -> AppDef:
        return greet(self.msg)
"""


@pytest.fixture(autouse=True)
def _components(cwd: Path) -> None:
    (cwd / "comp.py").write_text(COMPONENTS)


def args_of(info: Any) -> list[str]:
    return list(info.app.roles[0].args)


@pytest.mark.parametrize(
    ("component_args", "expected"),
    [
        (["--msg", "hi"], ["hi"]),
        (["--msg", "hi", "--times", "2"], ["hi", "hi"]),
        (["--msg=hi", "--", "--more", "x y"], ["hi", "--more", "x y"]),
        ({"msg": "hi", "times": 2}, ["hi", "hi"]),
    ],
)
def test_component_arguments_are_a_list_or_a_dict(
    runner: Runner, component_args: Any, expected: list[str]
) -> None:
    info = runner.dryrun_component("comp.py:greet", component_args, "fake")
    assert args_of(info) == expected


def test_class_component_is_run(runner: Runner) -> None:
    assert args_of(runner.dryrun_component("comp.py:Greeter", [], "fake")) == ["from a class"]
    info = runner.dryrun_component("comp.py:Greeter", ["--msg", "x"], "fake")
    assert args_of(info) == ["x"]


def test_run_component_submits(runner: Runner, scheduler: Any) -> None:
    handle = runner.run_component(
        "comp.py:greet", ["--msg", "hi"], "fake", {"queue": "q"}, parent_run_id="p"
    )
    assert handle == "fake://test/app1"
    app = runner.describe(handle)
    assert app is not None
    assert app.roles[0].env["TORCHX_PARENT_RUN_ID"] == "p"
    assert scheduler.calls[-1] == ("schedule", {"app": "greet", "queue": "q"})


def test_arguments_win_over_component_defaults(scheduler: Any) -> None:
    defaults = {"comp.py:greet": {"msg": "default", "times": "2"}, "other": {"msg": "no"}}
    runner = Runner("t", {"fake": lambda name, **kw: scheduler}, component_defaults=defaults)
    assert args_of(runner.dryrun_component("comp.py:greet", [], "fake")) == ["default"] * 2
    info = runner.dryrun_component("comp.py:greet", ["--msg", "hi"], "fake")
    assert args_of(info) == ["hi", "hi"]
    info = runner.dryrun_component("comp.py:greet", {"times": 1}, "fake")
    assert args_of(info) == ["default"]


@pytest.mark.parametrize(
    ("component", "component_args", "error", "text"),
    [
        ("comp.py:gret", [], ComponentNotFoundException, "did you mean 'greet'"),
        ("cmp.py:greet", [], ComponentNotFoundException, "did you mean 'comp.py'"),
        ("comp.py:bare", ["--x", "1"], ComponentValidationException, "argument 'x'"),
        ("comp.py:greet", [], ComponentArgumentError, "msg"),
        ("comp.py:greet", ["--msg", "a", "--times", "b"], ComponentArgumentError, "times"),
        ("comp.py:greet", ["--mesg", "a"], ComponentArgumentError, "msg"),
        ("comp.py:returns_none", [], ComponentTypeError, "None"),
        ("comp.py:exits", [], ComponentError, "ended the program (exit code 3)"),
        ("comp.py:exits", ["--code", "no way"], ComponentError, "ended the program (no way)"),
    ],
)
def test_component_problem_is_a_torchx_error(
    runner: Runner, scheduler: Any, component: str, component_args: Any, error: Any, text: str
) -> None:
    with pytest.raises(error) as raised:
        runner.run_component(component, component_args, "fake")
    assert text in str(raised.value)
    assert scheduler.calls == []


def test_exception_of_a_component_is_passed_on(runner: Runner) -> None:
    with pytest.raises(ValueError, match="not with me") as error:
        runner.dryrun_component("comp.py:refuses", [], "fake")
    assert type(error.value) is ValueError


def test_sweep_names_the_missing_distribution(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchx_sweep", None)
    with pytest.raises(RequestError, match="torchx-sweep is not installed; run: pip install"):
        runner.sweep("comp.py:greet", [], "fake", grid={"msg": ["a"]})
