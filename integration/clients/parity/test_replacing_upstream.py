"""Tests of the commands in docs/replacing-upstream.md, with wheels of this checkout."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "replacing-upstream.md").read_text("utf-8")


def commands(heading: str) -> list[str]:
    """Return the commands below a heading of the page."""
    _, _, section = PAGE.partition(f"\n## {heading}\n")
    blocks = re.findall(r"^```sh\n(.*?)^```$", section.partition("\n## ")[0], re.M | re.S)
    return "".join(blocks).splitlines()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheels and the constraints as ``nox -s wheels`` does, and return their folder."""
    folder = tmp_path_factory.mktemp("site") / "wheels"
    folder.mkdir()
    for package in sorted((ROOT / "packages").iterdir()):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=package, check=True, capture_output=True)
    lines = [f"{path.name.partition('-')[0]} @ {path.as_uri()}\n" for path in folder.glob("*.whl")]
    (folder / "constraints.txt").write_text("".join(lines), "utf-8")
    return folder


@pytest.fixture
def shell(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Activate a new environment, in a folder that also has the wheels; return its Python."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    (tmp_path / "wheels").symlink_to(wheels)
    monkeypatch.chdir(tmp_path)
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    monkeypatch.delenv("UV_PROJECT_ENVIRONMENT", raising=False)  # nox sets it to its environment.
    return environment / "bin" / "python"


def run(command: str) -> str:
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def owner(python: Path) -> str:
    """Return the name and version of the distribution that has the module ``torchx``."""
    code = (
        "import importlib.metadata as m; found = m.packages_distributions()['torchx'];"
        "print(*sorted({f'{name} {m.version(name)}' for name in found}))"
    )
    return subprocess.check_output([str(python), "-c", code], text=True, cwd="/").strip()


UPGRADE, *CLIENTS = commands("With pip")


@pytest.mark.parametrize("command", CLIENTS, ids=[re.split("[ =]", c)[5] for c in CLIENTS])
def test_pip_resolves_a_client_with_our_torchx(command: str, shell: Path, wheels: Path) -> None:
    run(UPGRADE)
    report = json.loads(run(f"{command} --dry-run -q --report -"))
    urls = {
        item["metadata"]["name"]: item["download_info"]["url"]
        for item in report["install"]
        if item["metadata"]["name"].startswith("torchx")
    }
    assert {"torchx", "torchx-specs"} <= set(urls)
    assert {url.rpartition("/")[0] for url in urls.values()} == {wheels.as_uri()}


def test_pip_installs_a_client_on_our_torchx_and_goes_back(shell: Path) -> None:
    (command,) = [c for c in CLIENTS if "torchmonarch" in c]
    run(UPGRADE)
    run(command)
    assert owner(shell) == "torchx 1.0.0"
    conflicts = [run(c) for c in commands("If both are installed")]
    assert all("local_cwd" in shown for shown in conflicts)
    for command in commands("Going back"):
        run(command)
    assert owner(shell) == "torchx 0.7.0"
    assert "torchx-0.7.0" in run("torchx --version")


def test_uv_takes_our_torchx(shell: Path) -> None:
    (text,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    Path("pyproject.toml").write_text(text)
    (command,) = commands("With uv")
    run(f"{shlex.quote(sys.executable)} -m {command}")
    assert owner(Path(".venv/bin/python").absolute()) == "torchx 1.0.0"
