"""Tests that the quickstart works as pasted: with its files, and its commands in one shell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)(?: title=(\S+))?\n(.*?)^```$", re.M | re.S)
INSTALL = "python3 tools/bootstrap.py shell\n"


def test_the_quickstart_works_as_pasted(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    page = (repository / "docs" / "quickstart.md").read_text("utf-8")
    blocks = BLOCK.findall(page)
    for _, name, text in blocks:
        if name:
            (tmp_path / name).write_text(text, "utf-8")
    scripts = [text for kind, name, text in blocks if kind == "sh" and text != INSTALL]
    assert len(scripts) == 6
    done = subprocess.run(
        ["bash", "-e", "-c", "".join(scripts)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("local_cwd://torchx/hello-") >= 2
    assert "#SBATCH" in done.stdout
    assert done.stdout.endswith("hello Ada from replica 0\n")
