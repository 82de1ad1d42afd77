"""The command of a container, run by real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchx_sched_aws.batch.command import PROLOGUE, make_command, read_command, replica_mark
from torchx_specs import macros

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)] or ["sh"]
PRINT = [
    sys.executable,
    "-c",
    "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))",
]
WORDS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


def run(
    command: list[str], shell: str, node: int, **variables: str
) -> tuple[list[str], dict[str, str]]:
    """Runs a command as the container of a node would; returns arguments and environment."""
    if command[0] == "sh":
        command = [*([shell] if shell != "busybox" else [shell, "sh"]), *command[1:]]
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "AWS_BATCH_JOB_NODE_INDEX": str(node), **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    args, env = json.loads(done.stdout)
    return args, env


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=20, deadline=None)
@given(st.lists(WORDS, max_size=5))
@example(["", "\n", " ", "*", "$HOME", "`id`", "'\"\\", "a\n\n", "-e", "%", "?", "[a-z]", "\\*"])
def test_words_arrive_with_the_replicas_index(shell: str, words: list[str]) -> None:
    mark = replica_mark(words)
    marked = [*words, mark, f"a{mark}b{mark}\n", f"{mark}{mark}"]
    args, _ = run(make_command([*PRINT, *marked], {}, mark, 3), shell, 5)
    assert args == [*words, "2", "a2b2\n", "22"]


@pytest.mark.parametrize("shell", SHELLS)
def test_variables_that_batch_cannot_set(shell: str) -> None:
    mark = replica_mark([])
    variables = {"EMPTY": "", "a.b": f"x{mark} y", "R": f"{mark}\n"}
    args, env = run(make_command([*PRINT, mark], variables, mark, 0), shell, 7, n="kept", o="too")
    assert args == ["7"]
    assert (env["EMPTY"], env["a.b"], env["R"]) == ("", "x7 y", "7\n")
    assert (env["n"], env["o"]) == ("kept", "too")
    assert [name for name in env if name.startswith("__torchx")] == []


def test_a_program_with_an_equals_sign(tmp_path: object) -> None:
    program = f"{tmp_path}/a=b"
    with open(program, "w") as file:
        file.write('#!/bin/sh\necho "ran $1 [$EMPTY]"\n')
    os.chmod(program, 0o700)
    command = make_command([program, "x"], {"EMPTY": ""}, "<mark>", None)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "ran x []\n"
    assert read_command(command) == ([program, "x"], {"EMPTY": ""})


def test_what_needs_no_shell_gets_none() -> None:
    assert make_command(["a", "b c"], {}, "<mark>", 0) == ["a", "b c"]
    assert make_command(["a"], {"E": ""}, "<mark>", None) == ["env", "E=", "a"]


def test_a_mark_is_in_no_word() -> None:
    mark = replica_mark(["x"])
    again = replica_mark([f"..{mark}.."])
    assert again != mark
    assert again not in mark


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (["a", "b c"], {}),
        (["a", "%torchx_replica_id%"], {}),
        (["a"], {"E": ""}),
        (["a", "r%torchx_replica_id%"], {"E": "", "R": "%torchx_replica_id%"}),
    ],
)
def test_commands_are_read_back(words: list[str], variables: dict[str, str]) -> None:
    mark = replica_mark([])
    read, env = read_command(make_command(words, variables, mark, 0))
    assert read == [word.replace(mark, macros.replica_id) for word in words]
    assert env == {k: v.replace(mark, macros.replica_id) for k, v in variables.items()}


@pytest.mark.parametrize("command", [[], ["env"], ["env", "A=b", "c"], ["sh", "-c", PROLOGUE]])
def test_commands_of_others_stay(command: list[str]) -> None:
    assert read_command(command) == (command, {})
