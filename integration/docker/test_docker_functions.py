"""Tests of Python functions in containers of a real engine, for a user who is not root."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker_engine import PYTHON

from torchx_sched_docker.scheduler import DockerScheduler

IMAGE = "torchx-test/functions:1"
# The packages that a job's program imports; `pip install torchx-functions` installs all of them.
PACKAGES = ("torchx_functions", "torchx_specs", "torchx_kit", "cloudpickle", "pluggy")
# The client runs on the Python that the images contain, so that client and job have one version.
DEBIAN_PYTHON = "/usr/bin/python3"
#: The user of the client if the tests run as root: "nobody" of Debian.
NOBODY = 65534
CLIENT = """
import json, os, sys
from torchx_functions import Executor, NoResultError

def where(number):
    return number, os.geteuid(), os.path.exists("/.dockerenv")

def fail():
    raise ValueError("in a container")

executor = Executor(sys.argv[1], "local_docker", {"pull": "never"}, image=sys.argv[2], mem_mb=64)
jobs = [executor.submit(where, 1), executor.submit(fail), *executor.map(where, range(5))]
found = []
for job in jobs:
    error = job.exception(300)
    if isinstance(error, NoResultError):
        found.append(str(error))
        continue
    owner = os.stat(os.path.join(job.folder, "outcome")).st_uid
    value = [repr(error), str(error.__cause__)] if error else job.result()
    found.append([value, owner])
print(json.dumps([os.geteuid(), found]))
"""


@pytest.fixture
def image(scheduler: DockerScheduler, tmp_path: Path) -> str:
    """Build an image with torchx-functions, and return its name."""
    folder = tmp_path / "image"
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(spec.origin).parent, folder / "site" / name, ignore=unwanted)
    target = "/usr/lib/python3/dist-packages/"
    (folder / "Dockerfile").write_text(f"FROM {PYTHON}\nCOPY site {target}\n")
    scheduler._docker_client.images.build(path=str(folder), tag=IMAGE)
    return IMAGE


@pytest.fixture
def shared() -> Iterator[Path]:
    """Create a folder that belongs to the client's user."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-functions-"))
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


def run_client(engine: dict[str, str], shared: Path, image: str) -> Any:
    """Run the client, and return its parsed output; if this process is root, run it as nobody."""
    variables = {**engine, "HOME": str(shared), "TORCHX_HOME": str(shared / "torchx")}
    variables["PYTHONPATH"] = os.pathsep.join(
        path for path in sys.path if "packages" in Path(path).parts or "site-packages" in path
    )
    if os.geteuid() == 0:
        # The client's group root may use the engine's socket. Let this group enter the folder.
        Path(engine["DOCKER_HOST"].removeprefix("unix://")).parent.chmod(0o711)
    user: dict[str, Any] = {"user": NOBODY, "group": 0} if os.geteuid() == 0 else {}
    done = subprocess.run(
        [DEBIAN_PYTHON, "-c", CLIENT, str(shared / "calls"), image],
        cwd=shared,
        env={"PATH": os.environ["PATH"], **variables},
        stdout=subprocess.PIPE,
        timeout=500,
        check=True,
        **user,
    )
    return json.loads(done.stdout)


def test_outcomes_of_containers_belong_to_the_user(
    engine: dict[str, str], shared: Path, image: str
) -> None:
    uid, (first, failed, *mapped) = run_client(engine, shared, image)
    assert first == [[1, 0, True], uid]  # The container runs as root.
    (message, traceback), owner = failed
    assert message == "ValueError('in a container')"
    assert "in fail" in traceback
    assert owner == uid
    assert mapped == [[[number, 0, True], uid] for number in range(5)]


def test_an_image_without_torchx_functions_is_an_error_with_the_command_for_the_log(
    engine: dict[str, str], scheduler: DockerScheduler, shared: Path
) -> None:
    _, found = run_client(engine, shared, PYTHON)
    assert len(found) == 7
    for message in found:
        assert "ended without a result (FAILED" in message
        assert "torchx log local_docker://torchx/" in message
