"""Helpers of the tests of sweeps."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Torchx = Callable[..., "subprocess.CompletedProcess[str]"]


def command(*words: str) -> list[str]:
    """Return the command line of ``torchx``."""
    return [sys.executable, "-m", "torchx_cli", *words]


def numbers(file: Path) -> list[int]:
    """Return the sorted numbers that elements have written to a file."""
    return sorted(int(line) for line in file.read_text().split()) if file.exists() else []


def read_json(text: str) -> Any:
    """Return the data in a command's JSON output."""
    return json.loads(text)
