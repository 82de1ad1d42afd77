"""Tests of changed arguments of a component call."""

from __future__ import annotations

import pytest

from torchx_runner.submissions.changes import (
    ArgumentChange,
    changed_arguments,
    read_changes,
)
from torchx_specs import AppDef
from torchx_specs.components.signature import signature_of
from torchx_specs.errors import RequestError


def component(
    *args: str, script: str = "", num_replicas: int = 1, j: str = "1x2", debug: bool = False
) -> AppDef:
    """Return no app."""
    raise NotImplementedError


def changed(arguments: str, changes: str, add: bool = False) -> str:
    found = list(read_changes(changes.split()))
    return " ".join(changed_arguments(arguments.split(), found, signature_of(component), add))


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ("", []),
        ("--lr 0.5", [ArgumentChange("--lr", "0.5")]),
        ("--lr=0.5 --x=", [ArgumentChange("--lr", "0.5"), ArgumentChange("--x", "")]),
        ("--lr -1 -n -", [ArgumentChange("--lr", "-1"), ArgumentChange("-n", "-")]),
        ("--resume --lr 1", [ArgumentChange("--resume", None), ArgumentChange("--lr", "1")]),
    ],
)
def test_changes(words: str, changes: list[ArgumentChange]) -> None:
    assert list(read_changes(words.split())) == changes


@pytest.mark.parametrize("words", ["lr", "--lr 1 2", "--"])
def test_word_that_is_no_change_is_an_error(words: str) -> None:
    with pytest.raises(RequestError, match="give changes as --NAME VALUE"):
        list(read_changes(words.split()))


@pytest.mark.parametrize(
    ("arguments", "changes", "result"),
    [
        # A component's parameter, in each of its spellings.
        ("--script a.py", "--script b.py", "--script b.py"),
        ("--script=a.py -j 2", "-j 3x4 --script b.py", "--script=b.py -j 3x4"),
        ("-j 2", "--j 3", "-j 3"),
        ("--num_replicas 2", "--num-replicas 3", "--num_replicas 3"),
        ("-- --lr 1", "--num_replicas 3", "--num_replicas 3 -- --lr 1"),
        ("--debug -j 2", "--no-debug", "--no-debug -j 2"),
        ("", "--debug", "--debug"),
        # An argument of the component's program.
        ("--script a.py -- --lr 1", "--lr 2", "--script a.py -- --lr 2"),
        ("-- --lr=1 --x", "--lr 2", "-- --lr=2 --x"),
        ("-- --batch-size 1", "--batch_size 2", "-- --batch-size 2"),
        ("-- --x --lr 1", "--x 3", "-- --x 3 --lr 1"),
        ("-- --lr -1 end", "--lr 2", "-- --lr 2 end"),
        ("-- --script x --lr 1", "--script y", "--script y -- --script x --lr 1"),
    ],
)
def test_changed_arguments(arguments: str, changes: str, result: str) -> None:
    assert changed(arguments, changes) == result


def test_argument_that_the_program_lacks_is_added_on_request() -> None:
    with pytest.raises(RequestError, match=r"--lrr is not among .*did you mean '--lr'\? --add"):
        changed("-- --lr 1", "--lrr 2")
    assert changed("-- --lr 1", "--x 2", add=True) == "-- --lr 1 --x 2"
    assert changed("-j 2", "--x 2 --y", add=True) == "-j 2 -- --x 2 --y"


def test_argument_that_occurs_twice_is_not_changed() -> None:
    with pytest.raises(RequestError, match="--lr is several times among the arguments; --edit"):
        changed("-- --lr 1 --lr 2", "--lr 3", add=True)
