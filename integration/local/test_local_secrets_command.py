"""Tests of references to secrets on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set ``TORCHX_HOME`` to a folder with one secret, and return the folder."""
    home = tmp_path / "home"
    (home / "secrets").mkdir(parents=True, mode=0o700)
    (home / "secrets" / "hf").write_text("p4ss")
    (home / "secrets" / "hf").chmod(0o600)
    monkeypatch.setenv("TORCHX_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home


def torchx(*options: str, env: str) -> subprocess.CompletedProcess[str]:
    job = ("--workspace", "", "utils.sh", "--env", env)
    script = 'test "$HF_TOKEN" = p4""ss && echo has the secret'
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torchx_cli",
            "run",
            "-s",
            "local_cwd",
            *options,
            *job,
            "sh",
            "-c",
            script,
        ],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_component_passes_a_reference(home: Path) -> None:
    done = torchx(env="HF_TOKEN=${secret:hf}")
    assert done.returncode == 0, done.stderr
    assert "has the secret" in done.stderr + done.stdout
    (home / "secrets" / "hf").unlink()
    found = [path for path in home.rglob("*") if path.is_file() and b"p4ss" in path.read_bytes()]
    assert found == []


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
def test_a_dry_run_shows_the_reference(home: Path, output: str) -> None:
    options = ["--dryrun"] if output == "text" else ["--dryrun", "-o", output]
    done = torchx(*options, env="HF_TOKEN=${secret:hf}")
    assert done.returncode == 0, done.stderr
    assert "${secret:hf}" in done.stdout
    assert "p4ss" not in done.stdout + done.stderr
    if output == "json":
        (role,) = json.loads(done.stdout)["app"]["roles"]
        assert role["env"]["HF_TOKEN"] == "${secret:hf}"


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("HF_TOKEN=${secret:none}", "the secret 'none' is missing; set TORCHX_SECRET_NONE, or"),
        ("HF_TOKEN=Bearer ${secret:hf}", "must be the whole value of a variable in env"),
        ("HF_TOKEN=${secret:../hf}", "is not a valid name of a secret"),
    ],
)
def test_a_wrong_reference_is_one_line(home: Path, env: str, message: str) -> None:
    done = torchx(env=env)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line
    assert "p4ss" not in line
