"""Parts of scripts that run roles, read by a real bash."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.scripts.job_script import (
    RoleWords,
    comments,
    env_words,
    role_functions,
    role_table,
)
from torchx_specs.errors import RequestError
from torchx_specs.model.templates import macros

K = "\0k\0"
WORDS = RoleWords(macros.Values("/img", "app", K, "RANK0"), {K: '"$1"'})
# Hypothesis also generates strings from our sources, macros among them; a macro is substituted.
TEXT_WITHOUT_MACROS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"])
).filter(
    lambda text: not re.search(r"\$\{?(img_root|base_img_root|app_id|replica_id|rank0_env)", text)
)


def bash(script: str, *args: str) -> bytes:
    return subprocess.run(
        ["bash", "-c", script, "bash", *args], capture_output=True, check=True, timeout=60
    ).stdout


class TestWords:
    def test_macros_are_filled_in(self) -> None:
        text = "${img_root} ${app_id} ${replica_id} ${rank0_env} ${base_img_root} ${other}"
        told = bash(f"printf %s {WORDS.word(text)}", "7; no code")
        assert told == b"/img app 7; no code RANK0 DEPRECATED ${other}"

    @given(st.lists(TEXT_WITHOUT_MACROS, min_size=1, max_size=5))
    def test_a_command_arrives_as_it_is(self, args: list[str]) -> None:
        line = " ".join(WORDS.command("printf", ["%s\\0", *args]))
        assert bash(line) == b"".join(arg.encode() + b"\0" for arg in args)
        assert line.isascii()
        assert "\n" not in line

    def test_the_error_says_which_word(self) -> None:
        with pytest.raises(RequestError, match=r"^args\[1\] holds a NUL character"):
            WORDS.command("prog", ["fine", "a\0b"])
        with pytest.raises(RequestError, match=r"^entrypoint: .* stands for no byte"):
            WORDS.command("\ud800", [])


class TestVariables:
    def test_those_of_bash_and_odd_names_go_through_env(self) -> None:
        lines, by_env = WORDS.exports({"A": "1 2", "SECONDS": "5", "a-b": "x\ny", "K": "${app_id}"})
        assert lines == ["export A='1 2'", "export K=app"]
        command = " ".join([*env_words(by_env, "env"), "env", "-0"])
        told = bash("\n".join([*lines, command])).split(b"\0")
        assert {b"A=1 2", b"K=app", b"SECONDS=5", b"a-b=x\ny"} <= set(told)

    def test_no_variables_need_no_env(self) -> None:
        assert WORDS.exports({}) == ([], [])
        assert env_words([], "a=b") == []

    def test_a_program_that_env_takes_for_a_variable(self) -> None:
        with pytest.raises(RequestError, match=r"entrypoint 'a=b' holds a ="):
            env_words(["SECONDS=5"], "a=b")

    @pytest.mark.parametrize("name", ["", "A=B", "A\0"])
    def test_names_that_are_none(self, name: str) -> None:
        with pytest.raises(RequestError, match=r"which is no variable's name"):
            WORDS.exports({name: "1"})

    def test_secrets_are_masked_when_shown(self) -> None:
        lines, _ = WORDS.exports({"API_TOKEN": "abc", "EMPTY_TOKEN": ""}, mask=True)
        assert "abc" not in lines[0]
        assert lines[1] == "export EMPTY_TOKEN=''"


def test_functions_of_roles() -> None:
    roles = [(2, 0, "a"), (1, 3, "b")]
    script = "\n".join(
        [
            comments(["made for\nyou", "caf\xe9"]),
            f"roles=(\n{role_table(roles)}\n)",
            role_functions(roles, [["x=1", 'echo "a $x $1"'], ["echo b"]]),
            'role_0 first; role_1; echo "${roles[1]}"',
        ]
    )
    assert script.startswith("# made for?you\n# caf?\n")
    assert bash(script) == b"a 1 first\nb\n1 3 b\n"
