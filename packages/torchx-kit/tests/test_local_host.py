"""The local machine as a host."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from host_conformance import HostConformance

from torchx_kit.hosts.local import LocalHost
from torchx_kit.hosts.testing import local_accesses


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


def test_local_accesses_are_found() -> None:
    found = {access.partition(":")[0] for access in local_accesses("torchx_kit.hosts")}
    assert found == {"local.py", "testing.py"}
    assert local_accesses("torchx_kit.hosts", exclude=["local.py", "testing.py"]) == []
    with pytest.raises(ValueError, match=r"'torchx_kit\.retry' is not a package"):
        local_accesses("torchx_kit.retry")
