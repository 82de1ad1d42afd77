"""Tests that the first example of a guide works as pasted, and prints what the page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.M | re.S)
LOSS = re.compile(r"\b0\.\d{4,}")


@pytest.mark.parametrize("page", ["functions", "sweeps", "trackers"])
def test_the_first_example_prints_the_losses_that_the_page_shows(
    page: str, repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    text = (repository / "docs" / f"{page}.md").read_text("utf-8")
    section = next(part for part in text.split("\n## ") if " title=train.py\n" in part)
    blocks = BLOCK.findall(section)
    for _, name, content in blocks:
        if name:
            (tmp_path / name).write_text(content, "utf-8")
    shown = next(content for kind, _, content in blocks if kind == "text")
    commands = next(content for kind, _, content in blocks if kind == "sh")
    done = subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert LOSS.findall(done.stdout) == LOSS.findall(shown) != []
