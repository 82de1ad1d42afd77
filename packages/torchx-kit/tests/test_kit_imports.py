"""Tests that importing the kit loads no heavy module."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["pluggy", "yaml", "fsspec", "asyncio", "subprocess", "logging", "json", "tempfile"]


@pytest.mark.parametrize(
    "code",
    [
        "import torchx_kit",
        "from torchx_kit.workspace import BuilderWorkspaceMixin",
        "from torchx_kit.workspace import walk_workspace, workspace_files, copy_workspace",
    ],
)
def test_import_loads_no_heavy_module(code: str) -> None:
    program = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout.split()
