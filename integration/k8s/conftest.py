"""The cluster of ``KUBECONFIG`` where that is set, otherwise a double that says so."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from k8s_double.handle import Double

from torchx_sched_k8s.kubernetes_scheduler import KubernetesScheduler, create_scheduler

#: Set by the user before the suite begins: the suite itself points it at the double.
KUBECONFIG = os.environ.get("KUBECONFIG", "")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubernetes")
    group.addoption("--k8s-image", default="busybox:local", help="an image with sh, on the nodes")
    group.addoption(
        "--k8s-python-image", default="local/python:3.11", help="an image with python, on the nodes"
    )
    group.addoption("--k8s-namespace", default="default", help="a namespace for the suite's jobs")


@pytest.fixture
def image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--k8s-image"))


@pytest.fixture
def python_image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--k8s-python-image"))


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--k8s-namespace"))


@pytest.fixture(scope="session")
def _running_double(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Double]:
    images = [request.config.getoption(f"--k8s-{kind}image") for kind in ("", "python-")]
    folder = tmp_path_factory.mktemp("k8s-double")
    double = Double(folder, *[word for image in images for word in ("--image", image)])
    namespace = request.config.getoption("--k8s-namespace")
    if namespace != "default":
        double.namespace(namespace)
    yield double
    double.close()


@pytest.fixture
def double(
    _running_double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Double]:
    """The double, as new for each test; it must not have failed itself."""
    _running_double.reset()
    monkeypatch.setenv("KUBECONFIG", str(_running_double.path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    yield _running_double
    problems = _running_double.problems()
    _running_double.reset()
    assert problems == []


@pytest.fixture
def scheduler(double: Double) -> Iterator[KubernetesScheduler]:
    """``kubernetes`` on the double."""
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


@pytest.fixture
def until() -> Callable[..., Any]:
    """Asks again until the answer is true, and gives it."""

    def wait(ask: Callable[[], Any], seconds: float = 20.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := ask()):
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.02)
        return found

    return wait
