"""Environments with the released peers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness import NEW, OLD

PEERS = {
    OLD: ["torchx==0.7.0", "kubernetes<32", "boto3"],
    NEW: ["torchx-nightly==2026.10.26", "kubernetes<32"],
}


def peer_python(release: str, tmp_path: Path) -> Path:
    """Return the Python of an environment with a released peer.

    For repeated runs, ``PARITY_PEERS`` may name a folder with an environment for each release.
    """
    cache = os.environ.get("PARITY_PEERS")
    if cache:
        return Path(cache, release, "bin", "python")
    folder = tmp_path / "peer"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    done = subprocess.run([*command, *PEERS[release]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return python
