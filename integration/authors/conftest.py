"""Fixtures: fresh environments with wheels of this repository, without access to the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Site:
    """A fresh virtual environment with some distributions of this repository.

    Args:
        folder: A new folder for the environment, its home directory and its working directory.
        constraints: A file that names the wheel of each distribution of this repository.
        environ: The environment variables of the programs that run in the site.
    """

    def __init__(self, folder: Path, constraints: Path, environ: Mapping[str, str]) -> None:
        self.work = folder / "work"
        self.bin = folder / "venv" / "bin"
        self._constraints = constraints
        self.environ = {**environ, "HOME": str(folder / "home"), "NO_COLOR": "1"}
        # Installations use the user's real home, which has the caches and settings of uv and pip.
        self._installing = dict(environ)
        self.environ["VIRTUAL_ENV"] = str(folder / "venv")
        self.environ["PATH"] = f"{self.bin}{os.pathsep}{environ.get('PATH', os.defpath)}"
        for path in (self.work, folder / "home"):
            path.mkdir(parents=True)
        self._uv("venv", "--python", sys.executable, folder / "venv")

    def install(self, *requirements: object) -> None:
        """Install requirements; distributions of this repository come from their wheels."""
        python = self.bin / "python"
        self._uv("pip", "install", "--python", python, "-c", self._constraints, *requirements)

    def _uv(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "uv", *map(str, arguments), "--quiet"]
        done = subprocess.run(
            command,
            env=self._installing,
            cwd=self.work,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def run(
        self, program: str, *arguments: object, cwd: Path | None = None, timeout: float = 600
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment in the working directory, or in ``cwd``."""
        return subprocess.run(
            [str(self.bin / program), *map(str, arguments)],
            env=self.environ,
            cwd=cwd or self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def check(self, program: str, *arguments: object, cwd: Path | None = None) -> str:
        """Run a program that must succeed, and return its standard output."""
        done = self.run(program, *arguments, cwd=cwd)
        assert done.returncode == 0, f"{program} {arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that names the wheel of each distribution of this repository.

    ``nox -s authors`` builds the wheels, and sets ``TORCHX_CONSTRAINTS`` to this file. Without that
    variable, this fixture builds them.
    """
    given = os.environ.get("TORCHX_CONSTRAINTS")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("wheels")
    for package in sorted(ROOT.glob("packages/*/pyproject.toml")):
        command = [sys.executable, "-m", "uv", "build", "--quiet", "--wheel", "-o", str(folder)]
        subprocess.run([*command, str(package.parent)], check=True)
    lines = [f"{path.name.partition('-')[0]} @ {path.as_uri()}\n" for path in folder.glob("*.whl")]
    path = folder / "constraints.txt"
    path.write_text("".join(lines), "utf-8")
    return path


@pytest.fixture
def make_site(tmp_path: Path, constraints: Path) -> Callable[[], Site]:
    """Return a function that creates a :class:`Site`."""
    environ = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("TORCHX", "PYTHON", "VIRTUAL_ENV"))
    }
    made: list[Site] = []

    def make() -> Site:
        made.append(Site(tmp_path / f"site{len(made)}", constraints, environ))
        return made[-1]

    return make
