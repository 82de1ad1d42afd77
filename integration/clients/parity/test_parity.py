"""Run the same probes on this ``torchx`` and on released peers, each in its own environment.

No probe fails on ours. The arguments of :func:`harness.probe` are the peers that pass a probe.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import probes  # noqa: E402,F401 - registers the probes
from harness import PROBES  # noqa: E402
from peers import PEERS, peer_python  # noqa: E402


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


@pytest.mark.parametrize("release", PEERS)
def test_a_peer_fails_the_probes_that_are_not_marked_with_it(
    release: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = failures(peer_python(release, tmp_path))
    with capsys.disabled():
        print(f"\n{PEERS[release][0]}: {len(found)} of {len(PROBES)} probes fail")
        print(*(f"  {name}: {error[:150]}" for name, error in found.items()), sep="\n")
    expected = {name for name, probe in PROBES.items() if release not in probe.releases}
    assert {name: found.get(name) for name in expected ^ set(found)} == {}
