"""Fixtures of all clients: an empty home directory, and the client's programs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use empty working and home directories, and the programs of the client's environment."""
    for name in [name for name in os.environ if name.startswith("TORCHX")]:
        monkeypatch.delenv(name)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    path = os.environ.get("PATH", os.defpath)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}{os.pathsep}{path}")


@pytest.fixture
def call() -> Call:
    """Return a function that runs a program of the client's environment."""

    def run(
        program: str, *arguments: object, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.prefix) / "bin" / program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def script(call: Call) -> Call:
    """Return a function that runs Python source as a script and returns its standard output.

    The script must exit with 0.
    """

    def run(source: str, *arguments: object, timeout: float = 600) -> str:
        Path("script.py").write_text(textwrap.dedent(source), "utf-8")
        done = call("python", "script.py", *arguments, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session", autouse=True)
def check_torchx_is_ours() -> None:
    """Fail if ``torchx`` is upstream's distribution instead of this repository's."""
    import torchx

    assert Path(__file__).resolve().parents[2] in Path(torchx.__file__).resolve().parents
