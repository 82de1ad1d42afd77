"""``torchx run`` runs scripts, modules and commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Torchx = Callable[..., "CompletedProcess[str]"]

SCRIPT = """
import json, os, sys
print("saw", json.dumps([*sys.argv[1:], os.path.basename(sys.argv[0])]))
"""
WORDS = ["--lr", "0.3", "--", "-m", "a b", "", "$HOME", "é"]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("run", "name"),
    [
        (["train.py"], "train"),
        (["--replicas", "1", "--cpu", "1", "-m", "package.train"], "train"),
        (["--name", "mine", "./train.py"], "mine"),
        (["--", "python3", "train.py"], "python3"),
    ],
)
def test_arguments_reach_the_program_unchanged(
    torchx: Torchx, tmp_path: Path, run: list[str], name: str
) -> None:
    work = tmp_path / "work"
    (work / "package").mkdir()
    for script in (work / "train.py", work / "package" / "train.py"):
        script.write_text(SCRIPT)
    done = torchx("run", "-s", "local_cwd", *run, *WORDS)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if " saw " in line]
    assert json.loads(line.partition(" saw ")[2]) == [*WORDS, "train.py"]
    assert done.stdout.startswith(f"local_cwd://torchx/{name}-")


def test_dry_run_shows_the_component_of_a_script(torchx: Torchx, tmp_path: Path) -> None:
    (tmp_path / "work" / "train.py").write_text(SCRIPT)
    done = torchx(
        *("run", "-s", "local_docker", "--dryrun", "-o", "json", "--mounts", "/data:/in:ro"),
        *("--gpu", "1", "--max-retries", "2", "train.py", "--x"),
    )
    assert done.returncode == 0, done.stderr
    [role] = json.loads(done.stdout)["app"]["roles"]
    assert role["args"] == ["train.py", "--x"]
    assert role["resource"]["gpu"] == 1
    assert role["max_retries"] == 2
    [mount] = role["mounts"]
    assert (mount["src_path"], mount["dst_path"], mount["read_only"]) == ("/data", "/in", True)
