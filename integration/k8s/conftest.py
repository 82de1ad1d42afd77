"""Fixtures: the cluster that ``KUBECONFIG`` names, or a double of Kubernetes."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
# The folder is appended, because its file k8s_double.py must not hide the package of this folder.
sys.path.append(str(Path(__file__).resolve().parent.parent / "services"))

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
    # the tests' apps use these images by default
    k8s_apps.IMAGE = config.getoption("--k8s-image")
    k8s_apps.PYTHON = config.getoption("--k8s-python-image")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn warnings about unclosed sockets and files into errors in ``test_sessions.py``."""
    path = Path(__file__).resolve().with_name("test_sessions.py")
    for item in items:
        if item.path.resolve() == path:
            item.add_marker(pytest.mark.filterwarnings("error::ResourceWarning"))
            unraisable = "error::pytest.PytestUnraisableExceptionWarning"
            item.add_marker(pytest.mark.filterwarnings(unraisable))


@pytest.fixture(autouse=True)
def _without_older_garbage(request: pytest.FixtureRequest) -> None:
    """Delete unclosed sockets and files of earlier tests, so that they do not fail this test."""
    if request.node.get_closest_marker("filterwarnings"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()


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
    """Options that select the API of ``--k8s-job-api``."""
    api = str(request.config.getoption("--k8s-job-api"))
    return {"job_api": api, **({"queue": "default"} if api == "volcano" else {})}


@pytest.fixture(scope="session")
def _running_double(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Double]:
    # tests of the double itself always use the last two images
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
    """The double, reset for each test. The test fails if there was an error in the double."""
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
