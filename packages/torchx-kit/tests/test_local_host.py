"""Tests of the local machine as a host, and of the search for accesses to this machine."""

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


def test_local_accesses_are_found_in_subpackages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    below = tmp_path / "acme_scheduler" / "status"
    below.mkdir(parents=True)
    (below.parent / "__init__.py").write_text("")
    (below / "__init__.py").write_text("")
    (below / "files.py").write_text("x = 1\nimport os\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert local_accesses("acme_scheduler") == ["status/files.py:2: os"]
    assert local_accesses("acme_scheduler", exclude=["files.py"]) == ["status/files.py:2: os"]
    assert local_accesses("acme_scheduler", exclude=["status/files.py"]) == []


def test_local_accesses_of_a_module_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"'torchx_kit\.retry' is not a package"):
        local_accesses("torchx_kit.retry")
