"""Tests of components as clients of older TorchX releases call and check them.

The expected results were recorded from torchx-nightly 2026.10.26; comments name the differences.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Annotated, Any

import pytest

import torchx.distributed
from torchx import deprecations, specs
from torchx.specs import builders
from torchx.specs.file_linter import validate
from torchx.util.modules import load_module
from torchx.util.types import get_argparse_param_type, to_dict
from torchx_specs.components import materialize
from torchx_specs.errors import ComponentArgumentError


def job(x: int, *args: str, name: str = "job") -> specs.AppDef:
    """Make a job."""
    role = specs.Role(name, image="i", args=[str(x), *args])
    return specs.AppDef(name, roles=[role])


@pytest.mark.parametrize(
    ("argv", "defaults", "config", "args"),
    [
        ([], None, {"args": ["p", "q r"]}, ["p", "q r"]),
        (["z"], None, {"args": ["p"]}, ["z"]),
        ([], {"args": "p q"}, None, ["p", "q"]),
        ([], {"args": "p q"}, {"args": ["r"]}, ["r"]),
        ([], None, None, []),
    ],
)
def test_parse_args_fills_varargs_from_the_configuration(
    argv: list[str], defaults: dict[str, str] | None, config: dict[str, Any] | None, args: list[str]
) -> None:
    parsed = builders.parse_args(job, ["--x", "1", *argv], defaults, config)
    assert parsed.args == args


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "missing required argument: --x"),
        (["--x", "z"], "'z' is not an int"),
        (["--y", "1"], "unknown option --y"),
    ],
)
@pytest.mark.parametrize("module", [specs, builders, specs.api])
def test_wrong_arguments_exit_with_the_usage(
    argv: list[str], message: str, module: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        module.materialize_appdef(job, argv)
    assert caught.value.code == 2
    assert isinstance(caught.value, ComponentArgumentError)
    err = capsys.readouterr().err
    assert err.startswith("usage: torchx run <run args...> job ")
    assert message in err.splitlines()[-1]


def test_help_is_printed_and_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        specs.materialize_appdef(job, ["--help"])
    assert caught.value.code == 0
    assert "Make a job." in capsys.readouterr().out


def test_right_arguments_make_the_app() -> None:
    app = specs.materialize_appdef(job, ["--x", "1", "a"], {"name": "other"})
    assert (app.name, app.roles[0].args) == ("other", ["1", "a"])


def test_the_command_gets_no_system_exit() -> None:
    with pytest.raises(ComponentArgumentError) as caught:
        materialize.materialize_appdef(job, [])
    assert not isinstance(caught.value, SystemExit)


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ("tuple[str]", "Unsupported tuple type 'tuple[str]': expected at least two items"),
        ("Tuple[int]", "Unsupported tuple type 'Tuple[int]': expected at least two items"),
        ("dict[str]", "Malformed dict type 'dict[str]', expected exactly two type parameters"),
        ("Dict[str, int, int]", "Malformed dict type 'Dict[str, int, int]', expected exactly two"),
    ],
)
def test_the_linter_names_the_expected_form(tmp_path: Path, annotation: str, message: str) -> None:
    file = tmp_path / "component.py"
    file.write_text(
        "from typing import Dict, Tuple\nfrom torchx.specs import AppDef\n"
        f"def comp(x: {annotation}) -> AppDef: ...\n"
    )
    (found,) = validate(str(file), "comp")
    assert found.description.startswith(message)
    assert f" for argument 'x: {annotation}' in function 'comp'" in found.description


def test_the_argparse_type_of_an_annotated_parameter() -> None:
    import inspect

    def fn(x: Annotated[int, "-n"], y: Annotated[list[str], "-m"]) -> None: ...

    parameters = inspect.signature(fn, eval_str=True).parameters
    assert get_argparse_param_type(parameters["x"]) is int
    assert get_argparse_param_type(parameters["y"]) is str


@pytest.mark.parametrize("text", ["a", "=x", "a=1,=2", " ", "=", "a:1"])
def test_to_dict_refuses_malformed_text(text: str) -> None:
    with pytest.raises(ValueError, match="key"):
        to_dict(text)


def test_load_module_warns_of_a_module_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "fails_to_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_module("fails_to_import") is None
    assert load_module("is_not_installed") is None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("torchx.util.modules", logging.WARNING)
    assert "fails_to_import" in record.getMessage()


def test_distributed_is_a_package() -> None:
    assert torchx.distributed.__path__
    assert callable(torchx.distributed.init_pg)


def test_deprecation_messages_start_with_deprecated() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        deprecations.deprecated(replacement="new")(lambda: None)()
        deprecations.deprecated_module("a.b", "c.d")
    assert all(str(warning.message).startswith("[Deprecated] ") for warning in caught)
    assert len(caught) == 2
