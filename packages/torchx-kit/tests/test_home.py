"""Tests of the directory in which TorchX keeps its files."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
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
        with pytest.raises(ConfigError, match=r"cannot create .*/file: .*set TORCHX_HOME"):
            TORCHX_HOME("x")


def test_the_default_follows_path_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert TORCHX_HOME("x") == tmp_path / ".torchx" / "x"


#: A program in which one thread begins to import pathlib, while another thread calls home_path().
#: The import is finished once home_path() has returned or a second has passed.
PROGRAM = """
import importlib.abc, importlib.machinery, sys, threading

for name in [name for name in sys.modules if name.partition(".")[0] == "pathlib"]:
    del sys.modules[name]
from torchx_kit.home import home_path

assert "pathlib" not in sys.modules
has_begun, may_end = threading.Event(), threading.Event()

class SlowLoader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module):
        has_begun.set()
        may_end.wait(60)
        super().exec_module(module)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "pathlib":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = SlowLoader(name, spec.origin)
        return spec

def find_home():
    try:
        print(home_path("x"))
    finally:
        may_end.set()

sys.meta_path.insert(0, Finder())
importing = threading.Thread(target=lambda: __import__("pathlib"))
importing.start()
has_begun.wait(60)
calling = threading.Thread(target=find_home)
calling.start()
may_end.wait(1)
may_end.set()
importing.join(60)
calling.join(60)
"""


def test_the_home_is_found_while_another_thread_imports_pathlib(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    environment.pop("TORCHX_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (f"{tmp_path}/.torchx/x\n", "")


def test_no_directory_is_open_to_others_whatever_the_umask_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "a" / "home"))
    before = os.umask(0)
    try:
        TORCHX_HOME("sweeps", "x")
    finally:
        os.umask(before)
    for path in ("a", "a/home", "a/home/sweeps", "a/home/sweeps/x"):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["home", "home/sweeps"])
def test_a_directory_that_others_can_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    TORCHX_HOME("sweeps")
    (tmp_path / name).chmod(0o777)
    for use in (TORCHX_HOME, home_path):
        with pytest.raises(ConfigError, match=rf"{tmp_path}/{name}: other users can write to it"):
            use("sweeps")
    monkeypatch.setenv("TORCHX_TRUSTED_FOLDERS", f"/nowhere:{tmp_path}")
    assert home_path("sweeps") == f"{tmp_path}/home/sweeps"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_directory_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    os.chown(TORCHX_HOME(), 12345, -1)
    with pytest.raises(ConfigError, match="it belongs to the user id 12345"):
        home_path("journal")
