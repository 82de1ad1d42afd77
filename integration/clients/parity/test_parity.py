"""The same probes on this ``torchx`` and on released peers, each in its own environment.

No probe fails on ours. :func:`harness.probe` lists the peers on which a probe passes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import probes  # noqa: E402,F401 - registers the probes
from harness import NEW, OLD, PROBES  # noqa: E402

PEERS = {
    OLD: ["torchx==0.7.0", "kubernetes<32", "boto3"],
    NEW: ["torchx-nightly==2026.10.26", "kubernetes<32"],
}


def failures(python: Path | str, *names: str) -> dict[str, str]:
    command = [str(python), str(FOLDER / "probes.py"), *names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="session")
def our_failures() -> dict[str, str]:
    return failures(sys.executable)


@pytest.mark.parametrize("name", PROBES)
def test_ours(name: str, our_failures: dict[str, str]) -> None:
    assert our_failures.get(name) is None


def install(release: str, folder: Path) -> Path:
    """Return the Python of an environment with a released peer."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q"]
    done = subprocess.run([*command, *PEERS[release]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return python


@pytest.mark.parametrize("release", PEERS)
def test_a_peer_fails_the_probes_that_are_not_marked_with_it(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # PARITY_PEERS: a folder with an environment for each release, for repeated runs.
    cache = os.environ.get("PARITY_PEERS")
    python = Path(cache, release, "bin", "python") if cache else install(release, tmp_path / "peer")
    found = failures(python)
    with capsys.disabled():
        print(f"\n{PEERS[release][0]}: {len(found)} of {len(PROBES)} probes fail")
        print(*(f"  {name}: {error[:150]}" for name, error in found.items()), sep="\n")
    expected = {name for name, probe in PROBES.items() if release not in probe.releases}
    assert {name: found.get(name) for name in expected ^ set(found)} == {}
