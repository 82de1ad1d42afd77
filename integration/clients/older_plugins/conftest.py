"""A fixture that builds distributions of plugins and installs them with pip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

Groups = Mapping[str, Sequence[str]]
Install = Callable[..., None]

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that builds a distribution with setuptools and installs it with pip.

    The distribution's modules are copied from the folder ``plugins``, in which ``torchx_plugins``
    is a namespace package.
    """
    target = tmp_path / "installed"
    python_path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(target), python_path])))

    def run(name: str, groups: Groups, modules: Sequence[str] = ()) -> None:
        source = tmp_path / f"source-{name}"
        source.mkdir()
        for module in modules:
            path = PLUGINS / module
            if path.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(path, source / module, ignore=ignored)
            else:
                shutil.copy(path.with_suffix(".py"), source)
        files = [m for m in modules if not (PLUGINS / m).is_dir()]
        (source / "setup.py").write_text(
            "from setuptools import find_namespace_packages, setup\n"
            f"setup(name={name!r}, version='1.2', py_modules={files!r},\n"
            f"      packages=find_namespace_packages(), entry_points={dict(groups)!r})\n"
        )
        command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(target)]
        done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    return run
