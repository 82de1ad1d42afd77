"""Tests of the variables and files that contain secrets of the submitting user."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from torchx_kit.secrets import resolve_secrets, with_values, without_secrets
from torchx_specs import RequestError, secret

HF = {"HF_TOKEN": secret("hf")}
DB = {"DB_PASSWORD": secret("db", "password")}


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [n for n in os.environ if n.startswith("TORCHX_SECRET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "secrets"
    folder.mkdir(parents=True, mode=0o700)
    return folder


def write(path: Path, content: bytes = b"value-1\n", mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def problem(env: dict[str, str]) -> str:
    with pytest.raises(RequestError) as e:
        resolve_secrets([env])
    assert "value-1" not in str(e.value)
    assert len(str(e.value).splitlines()) == 1
    return str(e.value)


def test_a_file_contains_a_secret(secrets: Path) -> None:
    write(secrets / "hf")
    write(secrets / "db" / "password", b"p\xff\n\n", 0o400)
    env = {**HF, **DB, "OTHER": "x"}
    values = resolve_secrets([env, HF])
    password = os.fsdecode(b"p\xff\n")
    assert values == {"${secret:hf}": "value-1", "${secret:db/password}": password}
    resolved = {"HF_TOKEN": "value-1", "DB_PASSWORD": password, "OTHER": "x"}
    assert with_values(env, values) == resolved


def test_a_variable_comes_before_the_file(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(secrets / "hf")
    monkeypatch.setenv("TORCHX_SECRET_HF", "from-env\n")
    monkeypatch.setenv("TORCHX_SECRET_DB__PASSWORD", "p")
    assert list(resolve_secrets([{**HF, **DB}]).values()) == ["from-env\n", "p"]
    assert "TORCHX_SECRET_HF" not in without_secrets(os.environ)


def test_all_missing_secrets_are_reported_with_what_to_do(secrets: Path) -> None:
    assert problem({**HF, **DB}) == (
        "env['HF_TOKEN']: the secret 'hf' is missing; set TORCHX_SECRET_HF, or write the secret to"
        f" {secrets}/hf (mode 0600); env['DB_PASSWORD']: the secret 'db' is missing; set"
        f" TORCHX_SECRET_DB__PASSWORD, or write the secret to {secrets}/db/password (mode 0600)"
    )
    secrets.rmdir()
    assert "is missing" in problem(HF)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_file_for_other_users_is_refused_with_the_repair(secrets: Path, mode: int) -> None:
    path = write(secrets / "hf", mode=mode)
    assert problem(HF) == (
        f"env['HF_TOKEN']: {path}: other users can use it (mode {mode:04o}); only the user who"
        f" submits the app may own and use a secret; run: chmod 600 {path}"
    )


@pytest.mark.parametrize("mode", [0o702, 0o707, 0o777])
@pytest.mark.parametrize("folder", ["", "db"])
def test_a_folder_that_others_may_write_is_refused(secrets: Path, folder: str, mode: int) -> None:
    write(secrets / "db" / "password")
    (secrets / folder).chmod(mode)
    found = problem(DB)
    assert f"other users can write to it (mode {mode:04o})" in found
    assert re.search(f"chmod (700|go-w) {secrets}", found)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(secrets: Path) -> None:
    os.chown(write(secrets / "hf"), 12345, -1)
    assert "it belongs to the user id 12345; only the user" in problem(HF)


def test_only_a_regular_file_is_read(secrets: Path) -> None:
    os.mkfifo(secrets / "hf", 0o600)
    assert "is not a regular file" in problem(HF)
    (secrets / "hf").unlink()
    (secrets / "hf").symlink_to(write(secrets / "other"))
    assert "is not a regular file" in problem(HF)
    (secrets / "hf").unlink()
    write(secrets / "hf" / "key")
    assert f"{secrets}/hf is a directory; refer to a file in it: ${{secret:hf/KEY}}" in problem(HF)
    write(secrets / "db")
    assert f"{secrets}/db must be a directory that contains" in problem(DB)


def test_a_link_to_a_folder_of_secrets_is_not_followed(secrets: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "password")
    (secrets / "db").symlink_to(tmp_path / "elsewhere")
    assert f"{secrets}/db must be a directory" in problem(DB)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\0b", "a NUL"),
        (b"x" * 200_000, "is longer than"),
    ],
)
def test_content_that_no_variable_can_have_is_refused(
    secrets: Path, content: bytes, text: str
) -> None:
    write(secrets / "hf", content)
    assert text in problem(HF)
