"""``torchx doctor`` on a real cluster."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def doctor() -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "torchx_cli", "doctor", "-s", "sge", "-o", "json"]
    done = subprocess.run(
        [*command, "--timeout", "30s"], check=False, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    return done.returncode, [row for row in json.loads(done.stdout) if row["subject"] == "sge"]


def test_version_queues_and_parallel_environment(cluster: Path) -> None:
    code, rows = doctor()
    assert code == 0, rows
    answer, environment = (row["message"] for row in rows)
    assert answer.startswith("Grid Engine ")
    assert " answers; queues: " in answer
    assert environment == "parallel environment smp: $pe_slots"


def test_an_unknown_queue_and_parallel_environment_are_reported(cluster: Path) -> None:
    Path(".torchxconfig").write_text("[sge]\nqueue = nowhere\npe = none\n")
    code, rows = doctor()
    assert code == 3
    levels = {row["message"].partition(";")[0]: row["level"] for row in rows[1:]}
    assert levels == {
        "there is no queue 'nowhere'": "error",
        "there is no parallel environment 'none'": "warning",
    }
