"""Tests of ``torchx plugins new``: names, files, and that a refused request writes nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx_cli.commands.plugins import NEW_KINDS
from torchx_cli.scaffold.create import KINDS, MAX_NAME

Cli = Callable[..., Any]


def test_the_option_has_all_kinds() -> None:
    assert tuple(KINDS) == NEW_KINDS


@pytest.mark.parametrize("kind", NEW_KINDS)
@pytest.mark.parametrize("name", ["acme-torchx", "a" * MAX_NAME])
def test_every_file_is_complete(cli: Cli, tmp_path: Path, kind: str, name: str) -> None:
    result = cli("plugins", "new", name, "--kind", kind, "--directory", str(tmp_path))
    assert result.code == 0, result.err
    folder = tmp_path / name
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = {path.relative_to(folder).as_posix() for path in files}
    module = name.replace("-", "_")
    assert {"pyproject.toml", "README.md", f"src/{module}/plugin.py", f"src/{module}/py.typed"} <= (
        names
    )
    for path in files:
        text = path.read_text("utf-8")
        assert not re.search(r"\{\{|MODULE\b|\.tmpl", text)
        if path.suffix == ".py":
            ast.parse(text)
            assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Acme", "'Acme' is not a valid name for a new distribution"),
        ("../acme", "'../acme' is not a valid name"),
        ("acme_torchx", "is not a valid name"),
        ("acme--x", "is not a valid name"),
        ("1acme", "is not a valid name"),
        ("a" * (MAX_NAME + 1), f"at most {MAX_NAME} characters"),
        ("json", "Python has its own 'json'"),
        ("lambda", "Python has its own 'lambda'"),
        ("torchx-cli", "a module 'torchx_cli' is already installed"),
        ("torchx", "a module 'torchx' is already installed|no word for the plugin's name"),
        ("fake-torchx", "'fake' is already a scheduler, given by"),
        ("absent-torchx", "'absent' is the name of a scheduler of TorchX"),
        ("torchx-import", "'import' is not a valid name for a scheduler"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, name: str, message: str
) -> None:
    result = cli("plugins", "new", name, "--kind", "scheduler", "--directory", str(tmp_path))
    assert result.code == 2
    assert re.search(message, result.err)
    assert result.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_another_name_of_the_plugin(cli: Cli, tmp_path: Path) -> None:
    arguments = ("fake-torchx", "--kind", "scheduler", "--as", "sim", "--directory", str(tmp_path))
    assert cli("plugins", "new", *arguments).code == 0
    text = (tmp_path / "fake-torchx/src/fake_torchx/plugin.py").read_text()
    assert '"sim",' in text


def test_an_existing_folder_is_refused_and_unchanged(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "acme-torchx"
    folder.mkdir()
    (folder / "mine").touch()
    result = cli("plugins", "new", folder.name, "--kind", "command", "--directory", str(tmp_path))
    assert result.code == 2
    assert f"{folder} exists; nothing was written" in result.err
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_one_line(cli: Cli, tmp_path: Path) -> None:
    result = cli("plugins", "new", "acme-torchx", "--kind", "command", "--directory", "/proc/self")
    assert result.code == 2
    assert "/proc/self/acme-torchx: cannot be created" in result.err


def test_plugins_without_a_sub_command_still_lists(cli: Cli) -> None:
    assert "distributions" in cli("plugins", "-o", "json").out
