"""Test that ``torchx plugins`` reports an environment with upstream's distribution and ours."""

from __future__ import annotations

import json
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.version import __version__

UPSTREAM = "torchx-nightly==2026.10.26"
FACADE = Path(__file__).resolve().parents[3] / "packages" / "torchx"

Pip = Callable[..., None]


@pytest.fixture
def python_and_pip(tmp_path: Path) -> tuple[Path, Pip]:
    """Return the Python and the pip of a new environment that also sees the current packages."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([str(python), "-c", code], text=True).strip())
    (outer,) = site.getsitepackages()
    (packages / "zz_outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n")

    def pip(*arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(python), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return python, pip


def plugins(python: Path) -> dict[str, Any]:
    command = [str(python), "-m", "torchx_cli", "plugins", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (2 if shown["problems"] or shown["conflicts"] else 0), done.stderr
    return shown


def install_problems(python: Path) -> list[str]:
    return [p["message"] for p in plugins(python)["problems"] if p["stage"] == "install"]


def test_upstream_installed_after_ours_is_reported(python_and_pip: tuple[Path, Pip]) -> None:
    python, pip = python_and_pip
    assert install_problems(python) == []
    pip("install", "--no-deps", UPSTREAM)
    (message,) = install_problems(python)
    ours = f"torchx {__version__}"
    assert message.startswith(
        f"torchx-nightly 2026.10.26 and {ours} both install the module 'torchx', which is"
        " imported from "
    )
    assert message.endswith(
        "; run: pip uninstall torchx-nightly; pip install --force-reinstall --no-deps"
        f" torchx=={__version__} torchx-cli=={__version__}"
    )
    # Plugins for our TorchX still work, and upstream's tracker fsspec causes no conflict.
    shown = plugins(python)
    assert "local_cwd" in [row["name"] for row in shown["schedulers"]]
    assert shown["conflicts"] == []
    pip("uninstall", "-y", "torchx-nightly")
    assert install_problems(python) == []


def test_ours_installed_after_upstream_is_reported(python_and_pip: tuple[Path, Pip]) -> None:
    python, pip = python_and_pip
    pip("install", "--no-deps", UPSTREAM)
    pip("install", "--no-deps", "--no-index", "--no-build-isolation", str(FACADE))
    (message,) = install_problems(python)
    assert "both install the module 'torchx', which is imported from " in message
    shown = plugins(python)
    assert shown["conflicts"] == []
    assert [p for p in shown["problems"] if p["stage"] != "install"] == []
