"""Tests of ``torchx components new``: names, files, and that a refused request writes nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx_cli.commands.components import TEMPLATE_NAMES
from torchx_cli.scaffold import create
from torchx_cli.scaffold.create import MAX_NAME
from torchx_specs import file_linter

Cli = Callable[..., Any]


def test_the_option_has_all_templates() -> None:
    folders = (Path(create.__file__).parent / "templates" / "component").iterdir()
    assert sorted(folder.name for folder in folders) == sorted(TEMPLATE_NAMES)


@pytest.mark.parametrize("template", TEMPLATE_NAMES)
@pytest.mark.parametrize("name", ["my_job", "a" * MAX_NAME])
def test_a_new_component_passes_torchx_lint(
    cli: Cli, tmp_path: Path, template: str, name: str
) -> None:
    result = cli("components", "new", name, "--template", template)
    assert result.code == 0, result.err
    assert f"run it: torchx run -s local_cwd {name}.py:{name}" in result.out
    assert file_linter.validate(str(tmp_path / f"{name}.py"), name) == []
    files = {path.name: path.read_text("utf-8") for path in tmp_path.glob(f"{name}*")}
    assert {f"{name}.py", f"{name}_job.py"} <= files.keys()
    for file, text in files.items():
        assert not re.search(r"\{\{|NAME\b", text)
        assert max(map(len, text.splitlines())) <= 100
        if file.endswith(".py"):
            ast.parse(text)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My", "'My' is not a valid name for a component"),
        ("../up", "is not a valid name"),
        ("a-b", "is not a valid name"),
        ("import", "is not a valid name"),
        ("a" * (MAX_NAME + 1), f"at most {MAX_NAME} characters"),
        ("json", "a file json.py would hide Python's own module"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, name: str, message: str
) -> None:
    result = cli("components", "new", name, "--directory", str(tmp_path))
    assert result.code == 2
    assert message in result.error
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_refused_and_nothing_is_written(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine_job.py").write_text("mine")
    result = cli("components", "new", "mine", "--directory", str(tmp_path))
    assert result.code == 2
    assert f"{tmp_path / 'mine_job.py'} exists; nothing was written" in result.error
    assert [path.name for path in tmp_path.iterdir()] == ["mine_job.py"]


def test_components_without_a_sub_command_shows_help(cli: Cli) -> None:
    result = cli("components")
    assert result.code == 1
    assert re.search(r"^  new +Create a component", result.out, re.MULTILINE)
