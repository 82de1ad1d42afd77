"""Configuration files that another user can change are not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchx_runner.config import api
from torchx_runner.config.api import find_configs, read_configs
from torchx_specs.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("TORCHXCONFIG", "TORCHX_TRUSTED_FOLDERS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / ".torchxconfig"
    path.write_text("[local_cwd]\nlog_dir = /theirs\n")
    path.chmod(0o666)
    api._warn.cache_clear()
    return path


def test_it_is_not_used_and_named_once(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read_configs() == read_configs() == []
    [message] = caplog.messages
    assert message == (
        f"{file} is not used: other users can write to it (mode 0666); if you trust it, name it in"
        " TORCHXCONFIG, or its folder in TORCHX_TRUSTED_FOLDERS"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_used(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.chmod(0o644)
    os.chown(file, 12345, -1)
    assert read_configs() == []
    assert "it belongs to the user id 12345" in caplog.text


@pytest.mark.parametrize("variable", ["TORCHXCONFIG", "TORCHX_TRUSTED_FOLDERS"])
def test_the_user_may_trust_it(
    file: Path, variable: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = file if variable == "TORCHXCONFIG" else file.parent
    monkeypatch.setenv(variable, str(path))
    assert [found.path for found in read_configs()] == [str(file)]
    assert caplog.messages == []


def test_a_file_that_is_replaced_after_the_check_is_an_error(file: Path) -> None:
    file.chmod(0o644)
    paths = find_configs()
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="is not used: other users can write to it"):
        api.read_config(paths[0])
