"""Fixtures: the cluster that ``KUBECONFIG`` names, or a double of Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

import double_client
import k8s_apps
from k8s_double.handle import Double

from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kubernetes")
    group.addoption("--k8s-image", default="busybox:local", help="an image with sh, on the nodes")
    group.addoption(
        "--k8s-python-image", default="local/python:3.11", help="an image with python, on the nodes"
    )
    group.addoption(
        "--k8s-job-api",
        default="batch",
        choices=["batch", "jobset", "volcano"],
        help="API of the jobs of the conformance suite and of the stories",
    )
    group.addoption("--k8s-namespace", default="default", help="a namespace for the suite's jobs")


def pytest_configure(config: pytest.Config) -> None:
    # the default images of the tests' apps
    k8s_apps.IMAGE = config.getoption("--k8s-image")
    k8s_apps.PYTHON = config.getoption("--k8s-python-image")


@pytest.fixture
def image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--k8s-image"))


@pytest.fixture
def python_image(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--k8s-python-image"))


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--k8s-namespace"))


@pytest.fixture
def api_cfg(request: pytest.FixtureRequest) -> dict[str, str]:
    """Options of the scheduler for the API of ``--k8s-job-api``."""
    api = str(request.config.getoption("--k8s-job-api"))
    return {"job_api": api, **({"queue": "default"} if api == "volcano" else {})}


@pytest.fixture(scope="session")
def _running_double(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Double]:
    # tests of the double itself use these two, whatever the options name
    images = {k8s_apps.IMAGE, k8s_apps.PYTHON, "busybox:local", "local/python:3.11"}
    folder = tmp_path_factory.mktemp("k8s-double")
    options = [argument for image in images for argument in ("--image", image)]
    double = Double(folder, *options, "--namespace", request.config.getoption("--k8s-namespace"))
    yield double
    double.close()


@pytest.fixture
def double(
    request: pytest.FixtureRequest,
    _running_double: Double,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Double]:
    """The double, reset for each test. The test fails if the double had a fault of its own."""
    _running_double.reset()
    monkeypatch.setenv("KUBECONFIG", str(_running_double.path))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    if "api_cfg" in request.fixturenames and request.config.getoption("--k8s-job-api") != "batch":
        for key in ("jobsets.jobset.x-k8s.io", "jobs.batch.volcano.sh"):
            _running_double.play_operator(key, pods=True)
    yield _running_double
    problems = _running_double.problems()
    _running_double.reset()
    assert problems == []


@pytest.fixture
def scheduler(double: Double) -> Iterator[KubernetesScheduler]:
    """The scheduler ``kubernetes`` on the double."""
    scheduler = create_scheduler("test")
    yield scheduler
    scheduler.close()


@pytest.fixture
def until() -> Callable[..., Any]:
    """A function that polls until a value is true, and returns it."""
    return double_client.until
