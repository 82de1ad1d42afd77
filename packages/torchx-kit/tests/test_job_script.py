"""Parts of job scripts, run by a real bash."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.scripts.job_script import (
    RoleQuoting,
    comment_lines,
    env_command,
    role_functions,
    role_table,
)
from torchx_specs.errors import RequestError
from torchx_specs.model.templates import macros

K = "\0k\0"
QUOTING = RoleQuoting(macros.Values("/img", "app", K, "RANK0"), {K: '"$1"'})
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


class TestQuoting:
    def test_macros_are_substituted(self) -> None:
        text = "${img_root} ${app_id} ${replica_id} ${rank0_env} ${base_img_root} ${other}"
        output = bash(f"printf %s {QUOTING.quote(text, 'args[0]')}", "7; no code")
        assert output == b"/img app 7; no code RANK0 DEPRECATED ${other}"

    @given(st.lists(TEXT_WITHOUT_MACROS, min_size=1, max_size=5))
    def test_arguments_arrive_unchanged(self, args: list[str]) -> None:
        line = " ".join(QUOTING.command("printf", ["%s\\0", *args]))
        assert bash(line) == b"".join(arg.encode() + b"\0" for arg in args)
        assert line.isascii()
        assert "\n" not in line

    def test_error_names_the_argument(self) -> None:
        with pytest.raises(RequestError, match=r"^args\[1\] contains a NUL character"):
            QUOTING.command("prog", ["fine", "a\0b"])
        with pytest.raises(RequestError, match=r"^entrypoint: .* is not a byte"):
            QUOTING.command("\ud800", [])


class TestVariables:
    def test_variables_that_bash_cannot_set_are_arguments_of_env(self) -> None:
        lines, by_env = QUOTING.exports(
            {"A": "1 2", "SECONDS": "5", "a-b": "x\ny", "K": "${app_id}"}
        )
        assert lines == ["export A='1 2'", "export K=app"]
        command = " ".join([*env_command(by_env, "env"), "env", "-0"])
        output = bash("\n".join([*lines, command])).split(b"\0")
        assert {b"A=1 2", b"K=app", b"SECONDS=5", b"a-b=x\ny"} <= set(output)

    def test_env_is_not_called_without_variables(self) -> None:
        assert QUOTING.exports({}) == ([], [])
        assert env_command([], "a=b") == []

    def test_program_that_env_would_take_for_a_variable_is_an_error(self) -> None:
        with pytest.raises(RequestError, match=r"entrypoint 'a=b' contains '='"):
            env_command(["SECONDS=5"], "a=b")

    @pytest.mark.parametrize("name", ["", "A=B", "A\0"])
    def test_invalid_variable_name_is_an_error(self, name: str) -> None:
        with pytest.raises(RequestError, match=r"which is not a valid variable name"):
            QUOTING.exports({name: "1"})

    def test_secrets_are_masked_on_request(self) -> None:
        lines, _ = QUOTING.exports({"API_TOKEN": "abc", "EMPTY_TOKEN": ""}, mask=True)
        assert "abc" not in lines[0]
        assert lines[1] == "export EMPTY_TOKEN=''"


def test_functions_and_table_of_roles() -> None:
    roles = [(2, 0, "a"), (1, 3, "b")]
    script = "\n".join(
        [
            comment_lines(["made for\nyou", "caf\xe9"]),
            f"roles=(\n{role_table(roles)}\n)",
            role_functions(roles, [["x=1", 'echo "a $x $1"'], ["echo b"]]),
            'role_0 first; role_1; echo "${roles[1]}"',
        ]
    )
    assert script.startswith("# made for?you\n# caf?\n")
    assert bash(script) == b"a 1 first\nb\n1 3 b\n"
