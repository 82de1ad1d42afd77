"""Tests that calls of public names have equal outcomes in a TorchX release and in our TorchX.

docs/coming-from-upstream.md lists the names that differ.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from peers import PEERS, peer_python  # noqa: E402

ROOT = FOLDER.parents[2]
PAGE = (ROOT / "docs" / "coming-from-upstream.md").read_text("utf-8")
DATA = {"0.7.0": "names-0.7.0.json", "2026.10.26": "names-nightly-2026.10.26.json"}
#: Modules that this ``torchx`` does not have, as the page says.
REMOVED = ("torchx.schedulers.gcp_batch_scheduler", "torchx.schedulers.ray")
#: Names whose results are random, times, or paths of the installation.
CHANGING = {
    "generate_filename",
    "get_abspath",
    "get_session_id_or_create_new",
    "make_unique",
    "rand_id",
    "random_id",
    "random_uint64",
}


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with links to all libraries of this environment, without our distributions.

    The environment of a peer uses this folder for PyTorch, IPython and MLflow, whose installation
    takes minutes.
    """
    folder = tmp_path_factory.mktemp("libraries")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("torchx", "_editable", "__")) and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


def outcomes(python: Path | str, names: Path, **env: str) -> dict[str, list[list[str]]]:
    """Run names.py with a Python, and return the outcomes of the calls by name."""
    command = [str(python), str(FOLDER / "names.py"), str(names)]
    done = subprocess.run(
        command,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[str]]] = json.loads(done.stdout)
    return found


def is_same(name: str, theirs: list[str], ours: list[str]) -> bool:
    """Return True if a call has the same outcome in a release (``theirs``) and in our TorchX.

    The class of our exception may be derived from the class of the release's exception.
    """
    if theirs[0] == ours[0] == "raises":
        return theirs[1] in ours
    if theirs[0] == ours[0] == "returns":
        has_value = bool(theirs[2]) and name not in CHANGING
        return theirs[1] == ours[1] and (not has_value or theirs[2] == ours[2])
    return theirs == ours


@pytest.mark.parametrize("release", PEERS)
def test_the_names_that_differ_are_documented(
    release: str, libraries: Path, tmp_path: Path
) -> None:
    python = peer_python(release, tmp_path)
    data = ROOT / "tools" / "data" / DATA[release]
    theirs = outcomes(python, data, LIBRARIES=str(libraries))
    modules = {path.rpartition(".")[0] for path in theirs}
    assert modules >= {"torchx.distributed", "torchx.notebook", "torchx.cli.main"}
    assert len(theirs) > 270
    calls = tmp_path / "calls.json"
    calls.write_text(json.dumps(theirs))
    ours = outcomes(sys.executable, calls)
    differing = {
        path: (mine, expected)
        for path, results in theirs.items()
        for mine, expected in zip(ours[path], results, strict=False)
        if not path.startswith(REMOVED) and not is_same(path.rpartition(".")[2], expected, mine)
    }
    _, _, section = PAGE.partition("## Names\n")
    documented = tuple(f".{name}" for name in re.findall(r"`([\w.]+)`", section))
    missing = [path for path, (mine, _) in differing.items() if mine[0] == "missing"]
    assert missing == []
    assert {path: why for path, why in differing.items() if not path.endswith(documented)} == {}
