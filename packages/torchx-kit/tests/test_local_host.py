"""Tests of the local machine as a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from host_conformance import HostConformance

from torchx_kit.hosts.local import LocalHost


class TestLocalHost(HostConformance):
    @pytest.fixture
    def host(self) -> LocalHost:
        return LocalHost()

    @pytest.fixture
    def directory(self, tmp_path: Path) -> str:
        path = tmp_path / "on the host"
        path.mkdir()
        return str(path)


def test_dry_runs_load_neither_subprocess_nor_shutil() -> None:
    code = (
        "import sys; from torchx_kit.hosts.local import LocalHost\n"
        "LocalHost().resolve('/a'); print({'subprocess', 'shutil'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
