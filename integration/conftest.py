"""Fixtures of all integration tests: ``torchx`` with an empty home, ended apps, shell sessions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import gate

if TYPE_CHECKING:
    from torchx_specs.schedulers import DescribeAppResponse, Scheduler

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.prefix) / "bin"
sys.path.insert(0, str(ROOT / "integration" / "services"))

Torchx = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gate",
        metavar="FOLDERS",
        help="Run only the tests of the gate, and all tests of these folders (FOLDER,FOLDER).",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a service one after the other in one worker of pytest-xdist."""
    from xdist.scheduler import LoadScopeScheduling

    class OneWorkerForEachService(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return gate.worker(nodeid.partition("/")[2])

    return OneWorkerForEachService(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--gate``, deselect the tests that the gate does not run."""
    whole = config.getoption("--gate")
    kept, others = [], []
    for item in items:
        name = item.nodeid.partition("integration/")[2]
        marked = item.get_closest_marker("gate") is not None
        is_kept = whole is None or gate.is_selected(name, marked, whole.split(","))
        (kept if is_kept else others).append(item)
    names = [item.nodeid.partition("integration/")[2] for item in kept]
    unused = [p for p in gate.TESTS if not any(gate.matches(name, [p]) for name in names)]
    folders = {name.partition("/")[0] for name in names}
    is_complete = {"*", *folders}.issuperset(p.partition("/")[0] for p in gate.TESTS)
    if whole is not None and is_complete and unused:
        raise pytest.UsageError(f"tools/testing/gate.py: no test matches {', '.join(unused)}")
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    """Ignore Python's warning about a socket that the docker library does not close.

    The library leaks a socket if no engine listens. Python warns when it collects the socket, which
    may be during another test.
    """
    never_connected = r"unclosed <socket\.socket fd=\d+, family=1, type=1, proto=0>"
    config.addinivalue_line("filterwarnings", f"ignore:{never_connected}:ResourceWarning")


@pytest.fixture
def repository() -> Path:
    return ROOT


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of ``torchx``: an empty home, and this Python's programs on PATH."""
    home = tmp_path / "home"
    home.mkdir()
    variables = {key: value for key, value in os.environ.items() if not key.startswith("TORCHX")}
    variables.update(HOME=str(home), VIRTUAL_ENV=sys.prefix, NO_COLOR="1")
    variables["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return variables


@pytest.fixture
def torchx(environment: dict[str, str], tmp_path: Path) -> Torchx:
    """Return a function that runs ``torchx`` with arguments in an empty folder."""
    folder = tmp_path / "work"
    folder.mkdir()

    def call(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / "torchx"), *map(str, arguments)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call


@pytest.fixture
def ended(scheduler: Scheduler[Any]) -> Callable[[str], DescribeAppResponse]:
    """Return a function that waits for the end of an app of ``scheduler`` and describes it."""
    from waiting import wait_for

    def wait(app_id: str) -> DescribeAppResponse:
        return wait_for(scheduler, app_id)

    return wait


@pytest.fixture
def page_session(environment: dict[str, str], tmp_path: Path) -> Callable[[str], None]:
    """Return a function that runs the shell session on a page of docs/schedulers and checks it."""
    import page_sessions

    folder = tmp_path / "project"
    folder.mkdir()

    def check(page: str) -> None:
        page_sessions.check(page, folder, environment)

    return check
