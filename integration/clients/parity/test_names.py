"""Every public name of a release, called with three inputs, does the same in ours.

docs/coming-from-upstream.md lists the names that differ.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from peers import PEERS, peer_python  # noqa: E402

ROOT = FOLDER.parents[2]
PAGE = (ROOT / "docs" / "coming-from-upstream.md").read_text("utf-8")
DATA = {"0.7.0": "names-0.7.0.json", "2026.10.26": "names-nightly-2026.10.26.json"}
#: Names whose results are random, times, or paths of the installation.
CHANGING = {
    "generate_filename",
    "get_abspath",
    "get_session_id_or_create_new",
    "make_unique",
    "random_id",
    "random_uint64",
}


def outcomes(python: Path | str, names: Path) -> dict[str, list[list[str]]]:
    """Return the outcomes of the calls by name; see names.py."""
    command = [str(python), str(FOLDER / "names.py"), str(names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[str]]] = json.loads(done.stdout)
    return found


def is_same(name: str, theirs: list[str], ours: list[str]) -> bool:
    """Return True if an outcome of ours is that of a release.

    Our exceptions may be of classes derived from those of the release.
    """
    if theirs[0] == ours[0] == "raises":
        return theirs[1] in ours
    if theirs[0] == ours[0] == "returns":
        has_value = bool(theirs[2]) and name not in CHANGING
        return theirs[1] == ours[1] and (not has_value or theirs[2] == ours[2])
    return theirs == ours


@pytest.mark.parametrize("release", PEERS)
def test_the_names_that_differ_are_documented(release: str, tmp_path: Path) -> None:
    python = peer_python(release, tmp_path)
    theirs = outcomes(python, ROOT / "tools" / "data" / DATA[release])
    assert len(theirs) > 200
    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps(theirs))
    ours = outcomes(sys.executable, calls)
    differing = {
        path.rpartition(".")[2]: (mine, expected)
        for path, results in theirs.items()
        for mine, expected in zip(ours[path], results, strict=False)
        if mine[0] != "missing" and not is_same(path.rpartition(".")[2], expected, mine)
    }
    _, _, section = PAGE.partition("## Names\n")
    documented = set(re.findall(r"`(\w+)`", section))
    assert {name: found for name, found in differing.items() if name not in documented} == {}
