"""Commands of Batch containers, run by real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torchx_sched_aws.command import batch_command, make_placeholder, read_batch_command
from torchx_specs import macros

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)] or ["sh"]
PRINT = [
    sys.executable,
    "-c",
    "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))",
]
TEXTS = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


def run(
    command: list[str], shell: str, node: int, **variables: str
) -> tuple[list[str], dict[str, str]]:
    """Run a command as on a node of Batch; return the program's arguments and environment."""
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
@settings(max_examples=20)
@given(st.lists(TEXTS, max_size=5))
@example(["", "\n", " ", "*", "$HOME", "`id`", "'\"\\", "a\n\n", "-e", "%", "?", "[a-z]", "\\*"])
def test_arguments_arrive_with_the_replica_index(shell: str, argv: list[str]) -> None:
    placeholder = make_placeholder(argv)
    marked = [*argv, placeholder, f"a{placeholder}b{placeholder}\n", f"{placeholder}{placeholder}"]
    args, _ = run(batch_command([*PRINT, *marked], {}, placeholder, 3), shell, 5)
    assert args == [*argv, "2", "a2b2\n", "22"]


@pytest.mark.parametrize("shell", SHELLS)
def test_command_sets_variables_that_batch_cannot_set(shell: str) -> None:
    placeholder = make_placeholder([])
    variables = {"EMPTY": "", "a.b": f"x{placeholder} y", "R": f"{placeholder}\n"}
    args, env = run(
        batch_command([*PRINT, placeholder], variables, placeholder, 0), shell, 7, n="kept", o="too"
    )
    assert args == ["7"]
    assert (env["EMPTY"], env["a.b"], env["R"]) == ("", "x7 y", "7\n")
    assert (env["n"], env["o"]) == ("kept", "too")
    assert [name for name in env if name.startswith("__torchx")] == []


def test_program_name_may_contain_an_equals_sign(tmp_path: object) -> None:
    program = f"{tmp_path}/a=b"
    with open(program, "w") as file:
        file.write('#!/bin/sh\necho "ran $1 [$EMPTY]"\n')
    os.chmod(program, 0o700)
    command = batch_command([program, "x"], {"EMPTY": ""}, "<placeholder>", 0)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "ran x []\n"
    assert read_batch_command(command) == ([program, "x"], {"EMPTY": ""})


def test_command_without_placeholder_runs_without_a_shell() -> None:
    assert batch_command(["a", "b c"], {}, "<placeholder>", 0) == ["a", "b c"]
    assert batch_command(["a"], {"E": ""}, "<placeholder>", 0) == ["env", "E=", "a"]


def test_placeholder_occurs_in_no_argument() -> None:
    placeholder = make_placeholder(["x"])
    again = make_placeholder([f"..{placeholder}.."])
    assert again != placeholder
    assert again not in placeholder


@pytest.mark.parametrize(
    ("argv", "variables"),
    [
        (["a", "b c"], {}),
        (["a", "%torchx_replica_id%"], {}),
        (["a"], {"E": ""}),
        (["a", "r%torchx_replica_id%"], {"E": "", "R": "%torchx_replica_id%"}),
    ],
)
def test_read_command_returns_argv_and_variables(
    argv: list[str], variables: dict[str, str]
) -> None:
    placeholder = make_placeholder([])
    read, env = read_batch_command(batch_command(argv, variables, placeholder, 0))
    assert read == [argument.replace(placeholder, macros.replica_id) for argument in argv]
    assert env == {k: v.replace(placeholder, macros.replica_id) for k, v in variables.items()}


@pytest.mark.parametrize("command", [[], ["env"], ["env", "A=b", "c"], ["sh", "-c", "x"]])
def test_read_command_returns_other_commands_unchanged(command: list[str]) -> None:
    assert read_batch_command(command) == (command, {})
