"""Tests of parts of job scripts, most of which a real bash runs."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import ClassVar

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
# Hypothesis also generates strings that occur in our sources, such as macros. A macro would be
# substituted, so texts with macros are left out.
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


class TestSecrets:
    ENV: ClassVar = {
        "HOME": "/elsewhere",
        "A": "${secret:hf}",
        "B": "${secret:db/pass.word}",
        "C": "c",
    }

    @pytest.fixture
    def secrets(self, tmp_path: Path) -> Path:
        folder = tmp_path / "ho me" / ".torchx" / "secrets"
        (folder / "db").mkdir(parents=True, mode=0o700)
        for name, content in {"hf": b"a $b 'c'\n\xff\n\n", "db/pass.word": b"p4ss"}.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o600)
        return folder

    def run(self, secrets: Path, *, container: bool = False) -> subprocess.CompletedProcess[bytes]:
        lines, env_args = QUOTING.exports(self.ENV)
        assert env_args == []
        script = role_functions([(1, 0, "main")], [[*lines, "exec -- /usr/bin/env -0"]])
        assert "p4ss" not in script
        # A job in a container has another HOME; there, the variable tx_secrets names the folder.
        home = {"HOME": str(secrets.parent.parent)}
        other = {"HOME": "/other", "TORCHX_HOME": "/other", "tx_secrets": str(secrets)}
        environ = {"PATH": os.environ["PATH"], **(other if container else home)}
        return subprocess.run(
            ["bash", "-c", f"{script}\n(role_0)"], env=environ, capture_output=True, timeout=60
        )

    def problem(self, secrets: Path) -> str:
        done = self.run(secrets)
        assert done.returncode == 2
        assert done.stdout == b""
        assert b"p4ss" not in done.stderr
        (line,) = done.stderr.decode().splitlines()
        return line

    @pytest.mark.parametrize("container", [False, True])
    def test_the_program_receives_the_bytes_of_the_files(
        self, secrets: Path, container: bool
    ) -> None:
        done = self.run(secrets, container=container)
        assert done.stderr == b""
        variables = dict(item.split(b"=", 1) for item in done.stdout.split(b"\0") if item)
        assert variables[b"A"] == b"a $b 'c'\n\xff\n"
        assert variables[b"B"] == b"p4ss"
        assert (variables[b"C"], variables[b"HOME"]) == (b"c", b"/elsewhere")
        assert not [name for name in variables if name.startswith(b"tx_")]

    def test_a_missing_secret_is_one_line(self, secrets: Path) -> None:
        (secrets / "db" / "pass.word").unlink()
        assert re.fullmatch(
            rf"env\['B'\], on \S+: the secret is missing; write it to {secrets}/db/pass.word"
            r" \(mode 0600\)",
            self.problem(secrets),
        )

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o601])
    def test_a_file_for_other_users_is_refused(self, secrets: Path, mode: int) -> None:
        (secrets / "hf").chmod(mode)
        assert f"can be used by other users; run: chmod 600 {secrets}/hf" in self.problem(secrets)

    @pytest.mark.parametrize("folder", ["", "db"])
    @pytest.mark.parametrize("mode", [0o770, 0o702])
    def test_a_folder_that_others_may_write_is_refused(
        self, secrets: Path, folder: str, mode: int
    ) -> None:
        (secrets / folder).chmod(mode)
        line = self.problem(secrets)
        assert f"{(secrets / folder)} can be written by other users; run: chmod 700" in line

    def test_only_a_regular_file_is_read(self, secrets: Path) -> None:
        (secrets / "hf").rename(secrets / "other")
        os.mkfifo(secrets / "hf", 0o600)
        assert "is not a regular file" in self.problem(secrets)
        (secrets / "hf").unlink()
        (secrets / "hf").symlink_to("other")
        assert "is a symbolic link" in self.problem(secrets)
        (secrets / "hf").unlink()
        (secrets / "hf").mkdir(0o700)
        assert "is not a regular file" in self.problem(secrets)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    @pytest.mark.parametrize("name", ["", "hf", "db"])
    def test_a_file_of_another_user_is_refused(self, secrets: Path, name: str) -> None:
        os.chown(secrets / name, 12345, -1)
        assert f"{secrets / name} belongs to another user" in self.problem(secrets)

    def test_an_empty_file_is_refused(self, secrets: Path) -> None:
        (secrets / "hf").write_text("\n")
        assert "is empty" in self.problem(secrets)

    @pytest.mark.parametrize("name", ["a.b", "LANG", "PWD", "BASH_ENV"])
    def test_a_variable_that_bash_cannot_set_is_refused(self, name: str) -> None:
        with pytest.raises(RequestError, match=r"refers to the secret 'hf', and bash cannot set"):
            QUOTING.exports({name: "${secret:hf}"})

    def test_a_script_without_secrets_has_no_code_for_them(self) -> None:
        assert "tx_secret" not in role_functions([(1, 0, "main")], [["export A=1"]])
