"""``torchx doctor`` on clusters with and without accounting, and with a stopped controller."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slurm_jobs import ACCOUNTING, PLAIN, Cluster


def doctor(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "torchx_cli", "doctor", "-s", "slurm", "-o", "json"]
    done = subprocess.run([*command, *arguments], check=False, capture_output=True, text=True)
    assert done.stdout, done.stderr
    rows = [row for row in json.loads(done.stdout) if row["subject"] == "slurm"]
    return done.returncode, rows


@pytest.mark.parametrize("cluster", [PLAIN, ACCOUNTING], indirect=True)
def test_a_cluster_has_no_errors(cluster: Cluster, work: Path) -> None:
    code, rows = doctor("--timeout", "30s")
    assert code == 0, rows
    messages = [row["message"] for row in rows]
    assert messages[0].startswith("slurm")
    assert any(message.startswith("partitions: ") for message in messages)
    accounting = "accounting answers" if cluster.accounting else "accounting is off: "
    assert any(message.startswith(accounting) for message in messages), messages
