"""What every client's tests need: a home of its own, and programs of the client's environment."""

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
    """An empty working directory and home, and the client's environment activated."""
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
    """Calls a program of the client's environment, in the working directory."""

    def run(*words: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.prefix) / "bin" / str(words[0])), *map(str, words[1:])],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def script(call: Call) -> Call:
    """Runs the text of a program, as a user who wrote it to a file; gives its standard output.

    It has to end with 0.
    """

    def run(text: str, *words: object, timeout: float = 120) -> str:
        Path("script.py").write_text(textwrap.dedent(text), "utf-8")
        done = call("python", "script.py", *words, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session", autouse=True)
def ours() -> None:
    """Nothing of upstream's is in the environment: ``torchx`` is this repository's."""
    import torchx

    assert Path(__file__).resolve().parents[2] in Path(torchx.__file__).resolve().parents
