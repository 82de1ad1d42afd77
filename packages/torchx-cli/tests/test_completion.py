"""Tests of completion: split lines, components read from source, words that are left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from torchx_cli.completion.answer import answer, find_completions, kept_prefix, split_line
from torchx_cli.main import torchx
from torchx_specs.components.source import ComponentSource, read_source
from torchx_specs.hookspecs import ComponentPlugin, hookimpl
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import Origin

SOURCE = """
import enum
from typing import Annotated, Literal, Optional
from colors import Color, Shape as Form
from torchx_specs import AppDef, specs

Size = Literal["s", "m"]


class Level(str, enum.Enum):
    LOW = "low"
    HIGH = "high"


def job(
    a: Literal["x", 1, True], b: "Optional[Size]", c: Level | None, d: bool = True, e: int = 1,
    f: Annotated[str, "-f", "text"] = "", g: list[Literal["p", "q"]] = [], h: Color = None,
    i: Form = None, *rest: str, k: dict[str, str] = {},
) -> "specs.AppDef":
    raise AssertionError("completion must not run a component")


class Built:
    def __init__(self, name: str) -> None: ...
    def build(self) -> AppDef: ...


def _hidden() -> AppDef: ...
def helper() -> int: ...
async def later() -> AppDef: ...


raise AssertionError("completion must not import a file")
"""


@pytest.fixture
def source(tmp_path: Path) -> ComponentSource:
    (tmp_path / "job.py").write_text(SOURCE)
    (tmp_path / "colors.py").write_text(
        "import enum\nclass Color(enum.Enum):\n    red = 1\n    green = 2\n"
        "class Shape:\n    round = 1\n"
    )
    return read_source(str(tmp_path / "job.py"))


def test_components_are_functions_and_classes_that_return_an_app(source: ComponentSource) -> None:
    assert source.components() == ["job", "Built"]


def completed(tmp_path: Path, *words: str) -> list[str]:
    """Return the completions of the last word, and ``FILE`` for names of files."""
    component = f"{tmp_path / 'job.py'}:job"
    items = find_completions(torchx, ["run", component, *words[:-1]], words[-1])
    return ["FILE" if item.type == "file" else item.value for item in items]


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--a", ["x", "1", "True"]),
        ("--b", ["s", "m"]),
        ("--c", ["LOW", "HIGH"]),
        ("--d=", ["--d=true", "--d=false"]),
        ("--e", []),
        ("-f", ["FILE"]),
        ("--g", ["p", "q"]),
        ("--h", ["red", "green"]),
        ("--i", []),
        ("--k", ["FILE"]),
    ],
)
@pytest.mark.usefixtures("source")
def test_values_are_completed_by_the_type(tmp_path: Path, option: str, values: list[str]) -> None:
    words = (option,) if option.endswith("=") else (option, "")
    assert completed(tmp_path, *words) == values


@pytest.mark.usefixtures("source")
def test_options_are_completed_until_they_are_used(tmp_path: Path) -> None:
    assert completed(tmp_path, "-") == [
        *(option for name in "abc" for option in (f"-{name}", f"--{name}")),
        *("-d", "--d", "--no-d", "-e", "--e", "-f", "--f", "-g", "--g", "-h", "--h"),
        *("-i", "--i", "-k", "--k", "--help"),
    ]
    used = completed(tmp_path, "--a", "x", "--g", "p", "-f", "1", "--")
    assert {"--a", "--f", "--g"} & set(used) == {"--g"}
    assert completed(tmp_path, "rest", "") == ["FILE"]


@pytest.mark.parametrize(
    ("line", "words", "last"),
    [
        ("", [], ""),
        ("torchx", [], "torchx"),
        ("torchx ", ["torchx"], ""),
        ("torchx 'a b' \"c 'd", ["torchx", "a b"], "c 'd"),
        ("torchx a\\ b ''  x", ["torchx", "a b", ""], "x"),
        ('torchx "a\\"b"', ["torchx"], 'a"b'),
    ],
)
def test_lines_are_split_as_bash_does(line: str, words: list[str], last: str) -> None:
    assert split_line(line) == (words, last)


def test_bash_keeps_what_precedes_a_word_break() -> None:
    assert kept_prefix("train.py:ma", " \t:=") == len("train.py:")
    assert kept_prefix("slurm://tor", ":") == len("slurm:")
    assert kept_prefix("--a=b:c", "=") == len("--a=")
    assert kept_prefix("a:b", " ") == 0


def test_words_that_a_shell_would_change_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = [
        "plain",
        "a\nb",
        "a\tb",
        "$(reboot)",
        "a b",
        "`x`",
        "\x1b[2J",
        "x;y",
        "d\u00e9j\u00e0=1",
    ]
    command = click.Command("c", params=[click.Argument(["x"], type=click.Choice(choices))])
    monkeypatch.setenv("_TORCHX_COMPLETE", "fish")
    answer(click.Group("torchx", commands=[command]), ["c", ""])
    assert capsys.readouterr().out == "word\tplain\t\nword\td\u00e9j\u00e0=1\t\n"


@pytest.mark.parametrize("disabled", [False, True])
def test_components_of_a_plugin_that_the_configuration_blocks_are_not_completed(
    plugin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disabled: bool
) -> None:
    class Acme:
        @hookimpl
        def torchx_components(self) -> Iterator[ComponentPlugin]:
            yield ComponentPlugin("acme", "acme_completion")

    (tmp_path / "acme_completion.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    get_manager().register(Acme(), "acme", Origin("acme-dist", "1", "acme"))
    if disabled:
        (tmp_path / ".torchxconfig").write_text("[plugins]\ndisabled = acme-dist\n")
    names = {item.value for item in find_completions(torchx, ["run"], "acme.")}
    options = {item.value for item in find_completions(torchx, ["run", "acme.Built"], "--na")}
    assert names - {"acme."} == (set() if disabled else {"acme.job", "acme.Built"})
    assert options == (set() if disabled else {"--name"})
