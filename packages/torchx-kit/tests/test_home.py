"""The directory in which TorchX keeps its files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from torchx_kit.home import TORCHX_HOME, home_path
from torchx_specs.errors import ConfigError


class TestHome:
    def test_the_variable_names_the_directory(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
        made = TORCHX_HOME("local", "jobs")
        assert made == tmp_path / "home" / "local" / "jobs"
        assert made.is_dir()
        assert stat.S_IMODE(made.stat().st_mode) == 0o700

    @pytest.mark.parametrize("unset", [None, ""])
    def test_the_default_is_below_the_user_s_home(
        self, unset: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("TORCHX_HOME", raising=False)
        if unset is not None:
            monkeypatch.setenv("TORCHX_HOME", unset)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert home_path("x") == f"{tmp_path}/.torchx/x"
        assert not (tmp_path / ".torchx").exists()
        assert tmp_path / ".torchx" == TORCHX_HOME()
        assert (tmp_path / ".torchx").is_dir()

    def test_a_directory_that_cannot_be_created_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "file"))
        with pytest.raises(ConfigError, match=r"cannot create .*/file/x: .*set TORCHX_HOME"):
            TORCHX_HOME("x")


def test_the_default_follows_path_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert TORCHX_HOME("x") == tmp_path / ".torchx" / "x"
