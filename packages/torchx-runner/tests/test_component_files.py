"""Tests of loading component files: module names, imports, errors, texts from plugins."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx_runner.components import files as component_files
from torchx_runner.components import finder
from torchx_runner.components.files import load_component_file
from torchx_specs import ComponentError, ComponentNotFoundException
from torchx_specs.hookspecs import ComponentPlugin

COMPONENT = "from torchx_specs import AppDef\ndef f() -> AppDef:\n    return AppDef(NAME)\n"


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(component_files, "_loaded", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    sys.modules.clear()
    sys.modules.update(before)


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def name_of(component: str) -> str:
    return finder.get_component(component).fn().name


def test_file_outside_a_package_is_imported_by_its_name(cwd: Path) -> None:
    write(cwd / "alone.py", f"NAME = __name__\n{COMPONENT}")
    assert name_of("alone.py:f") == "alone"
    assert name_of("./alone.py:f") == "alone"
    assert name_of(f"{cwd}/alone.py:f") == "alone"
    assert sys.modules["alone"].__file__ == os.path.realpath("alone.py")


@pytest.mark.parametrize(
    "import_", ["from beside import NAME", "import beside; NAME = beside.NAME"]
)
def test_file_can_import_its_siblings(cwd: Path, tmp_path: Path, import_: str) -> None:
    write(tmp_path / "jobs" / "beside.py", "NAME = 'beside'")
    write(tmp_path / "jobs" / "train.py", f"{import_}\n{COMPONENT}")
    assert name_of("../jobs/train.py:f") == "beside"
    assert sys.path[-1] == os.path.realpath("../jobs")


@pytest.mark.parametrize("import_", ["from . import near", "from pkg.sub import near"])
def test_file_in_a_package_is_imported_by_its_dotted_name(cwd: Path, import_: str) -> None:
    write(cwd / "deep/pkg/__init__.py", "")
    write(cwd / "deep/pkg/sub/__init__.py", "")
    write(cwd / "deep/pkg/sub/near.py", "NAME = 'near'")
    write(cwd / "deep/pkg/sub/comp.py", f"{import_}\nNAME = near.NAME + __name__\n{COMPONENT}")
    assert name_of("deep/pkg/sub/comp.py:f") == "nearpkg.sub.comp"
    assert name_of("pkg.sub.comp:f") == "nearpkg.sub.comp"


def test_init_file_is_imported_as_its_package(cwd: Path) -> None:
    write(cwd / "pack/__init__.py", f"NAME = __name__\n{COMPONENT}")
    assert name_of("pack/__init__.py:f") == "pack"


def test_no_bytecode_is_written(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    write(cwd / "tidy.py", f"NAME = 'x'\n{COMPONENT}")
    name_of("tidy.py:f")
    assert os.listdir(cwd) == ["tidy.py"]


def test_the_same_file_is_one_module_until_it_changes(cwd: Path) -> None:
    path = write(cwd / "same.py", f"NAME = 'one'\n{COMPONENT}")
    first = load_component_file(path)
    assert load_component_file("same.py") is first
    write(cwd / "same.py", f"NAME = 'three'\n{COMPONENT}")
    assert name_of("same.py:f") == "three"
    assert sys.modules["same"] is not first


def test_file_that_the_program_imported_is_reused(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cwd / "imported_before.py", f"NAME = 'x'\n{COMPONENT}")
    monkeypatch.syspath_prepend(str(cwd))
    module = __import__("imported_before")
    assert load_component_file("imported_before.py") is module


def test_two_files_of_one_name_are_two_modules(cwd: Path) -> None:
    for folder in "ab":
        write(cwd / folder / "train.py", f"NAME = '{folder}'\n{COMPONENT}")
    assert [name_of(f"{folder}/train.py:f") for folder in "aba"] == ["a", "b", "a"]


def test_file_named_like_a_standard_module_does_not_replace_it(cwd: Path) -> None:
    import json

    write(cwd / "json.py", f"NAME = 'mine'\n{COMPONENT}")
    assert name_of("json.py:f") == "mine"
    assert sys.modules["json"] is json


@pytest.mark.parametrize("filename", ["my-job.py", "2fast.py", "job.v2.py", "ünï.py", "a b.py"])
def test_file_name_that_is_not_an_identifier_is_converted(cwd: Path, filename: str) -> None:
    write(cwd / filename, f"NAME = 'x'\n{COMPONENT}")
    assert name_of(f"{filename}:f") == "x"


def test_path_may_contain_colons(cwd: Path) -> None:
    write(cwd / "a:b" / "c:d.py", f"NAME = 'x'\n{COMPONENT}")
    assert name_of("a:b/c:d.py:f") == "x"


def test_link_and_target_are_one_module(cwd: Path) -> None:
    write(cwd / "real.py", f"NAME = 'x'\n{COMPONENT}")
    os.symlink("real.py", cwd / "link.py")
    assert load_component_file("link.py") is load_component_file("real.py")


FAILING = {
    "syntax": ("x = 1\ndef f(:\n", "bad.py:2: SyntaxError: "),
    "indentation": ("def f():\nreturn 1\n", "bad.py:2: IndentationError: "),
    "raises": ("x = 1\n\n1 / 0\n", "bad.py:3: cannot be loaded: ZeroDivisionError: division"),
    "import": ("import nowhere\n", "bad.py:1: cannot be loaded: ModuleNotFoundError: No module"),
    "exit": ("import sys\nsys.exit(3)\n", "bad.py:2: cannot be loaded: SystemExit: 3"),
    "silent": ("raise ValueError\n", "bad.py:1: cannot be loaded: ValueError: (no message)"),
    "NUL": ("x = '\0'\n", "bad.py"),
}


@pytest.mark.parametrize(("text", "message"), FAILING.values(), ids=FAILING)
def test_file_that_cannot_be_loaded_is_an_error_with_its_line(
    cwd: Path, text: str, message: str
) -> None:
    write(cwd / "jobs" / "bad.py", text)
    path, modules = list(sys.path), set(sys.modules)
    with pytest.raises(ComponentError) as error:
        finder.get_component("jobs/bad.py:f")
    assert str(error.value).startswith(f"jobs/{message}")
    assert "\n" not in str(error.value)
    assert sys.path == path
    assert "bad" not in set(sys.modules) - modules


def test_error_in_an_imported_file_names_both_files(cwd: Path) -> None:
    write(cwd / "jobs" / "helper_with_typo.py", "def f(:\n")
    write(cwd / "jobs" / "uses.py", "\nimport helper_with_typo\n")
    with pytest.raises(
        ComponentError, match=r"jobs/uses\.py: .*helper_with_typo\.py:1: SyntaxError"
    ):
        load_component_file("jobs/uses.py")


def test_interrupt_while_loading_is_not_a_component_error(cwd: Path) -> None:
    write(cwd / "slow.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_component_file("slow.py")


def test_a_failed_reload_keeps_the_last_good_module(cwd: Path) -> None:
    first = load_component_file(write(cwd / "flaky.py", "NAME = 'good'\n"))
    write(cwd / "flaky.py", "oops(\n")
    with pytest.raises(ComponentError):
        load_component_file("flaky.py")
    assert sys.modules["flaky"] is first


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("nowhere.py", "no such file: nowhere.py"),
        ("trian.py", "no such file: trian.py; did you mean 'train.py'?"),
        ("sub/train.py", "no such file: sub/train.py (folder sub does not exist)"),
        (".", ". is a folder"),
    ],
)
def test_missing_file_is_an_error_with_the_nearest_name(cwd: Path, path: str, text: str) -> None:
    write(cwd / "train.py", "")
    with pytest.raises(ComponentNotFoundException) as error:
        load_component_file(path)
    assert text in str(error.value)
    assert isinstance(error.value, FileNotFoundError)


def test_file_without_a_function_name_is_an_error(cwd: Path) -> None:
    write(cwd / "comp.py", "x = 1 / 0\ndef _app(): ...\ndef a(): ...\nclass B: ...\n")
    with pytest.raises(ComponentNotFoundException, match=r"functions in it: a, B$"):
        finder.get_component("comp.py")


@pytest.mark.parametrize("path", ["/dev/zero", "./pipe"])
def test_device_or_named_pipe_in_place_of_a_component_is_not_read(cwd: Path, path: str) -> None:
    os.mkfifo(cwd / "pipe")
    with pytest.raises(ComponentNotFoundException, match=r"file\.py:function, got"):
        finder.get_component(path)
    with pytest.raises(ComponentNotFoundException):
        finder.get_component(f"{path}:function")


def test_missing_function_is_an_error_with_the_nearest_name(cwd: Path) -> None:
    write(cwd / "comp.py", f"from typing import *\nfrom shutil import copy\n{COMPONENT}")
    with pytest.raises(ComponentNotFoundException, match=r"functions in it: f$"):
        finder.get_component("comp.py:nope")
    with pytest.raises(ComponentNotFoundException, match="did you mean 'copy'"):
        finder.get_component("comp.py:copyy")


def test_component_file_is_read_by_the_first_plugin_that_has_it(plugins: Any) -> None:
    def never(path: str) -> str:
        raise OSError

    texts = {"store://a/comp.py": f"NAME = 'from afar'\n{COMPONENT}"}

    def read(path: str) -> str:
        if path not in texts:
            raise FileNotFoundError(path)
        return texts[path]

    plugins.add("torchx_components", ComponentPlugin("", read_file=never), distribution="a")
    plugins.add("torchx_components", ComponentPlugin("", read_file=read), distribution="b")
    assert name_of("store://a/comp.py:f") == "from afar"
    assert load_component_file("store://a/comp.py") is load_component_file("store://a/comp.py")
    texts["store://a/comp.py"] = f"NAME = 'changed'\n{COMPONENT}"
    assert name_of("store://a/comp.py:f") == "changed"
    assert "from torchx_specs" in finder.get_builtin_source("store://a/comp.py:f")
    with pytest.raises(ComponentNotFoundException):
        finder.get_component("store://b/comp.py:f")
    texts["store://c"] = "oops("
    with pytest.raises(ComponentError, match=r"^store://c:1: SyntaxError"):
        finder.get_component("store://c:f")
