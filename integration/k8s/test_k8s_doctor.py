"""Test of ``torchx doctor`` on a double with all operators that cannot check the user's rights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from k8s_double.handle import Double

Torchx = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def environment(environment: dict[str, str], double: Double) -> dict[str, str]:
    return {**environment, "KUBECONFIG": str(double.path)}


def test_version_operators_and_rights(torchx: Torchx, tmp_path: Path) -> None:
    (tmp_path / "work" / ".torchxconfig").write_text("[kubernetes]\njob_api = jobset\n")
    done = torchx("doctor", "-s", "kubernetes", "--timeout", "60s", "-o", "json")
    rows = [row for row in json.loads(done.stdout) if row["subject"] == "kubernetes"]
    assert done.returncode == 0, rows
    found = {row["message"].partition(":")[0].partition(" at ")[0]: row["level"] for row in rows}
    assert found.pop("cannot check your rights") == "warning"
    assert set(found.values()) == {"ok"}
    assert {"JobSet", "Volcano", "Kueue"} <= set(found)
    assert any(message.startswith("Kubernetes 1.") for message in found)
