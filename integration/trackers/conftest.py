"""Fixtures: the services that trackers use, and a release of upstream's TorchX (the peer)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from http_server import HttpServer

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES = ROOT / "integration" / "services"
PEER = "torchx-nightly==2026.10.26"


def start(script: str, folder: Path, ready: str) -> HttpServer:
    """Start a script in ``integration/services`` with a port and a folder for its files.

    Args:
        script: The name of the script.
        folder: The folder for the server's files.
        ready: The path of a URL; the server responds to this URL once it is ready.
    """
    path = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ['PATH']}"
    command = str(SERVICES / script)
    return HttpServer(
        lambda port: [command, str(port), str(folder)],
        ready,
        folder / f"{script}.log",
        {**os.environ, "PATH": path},
    )


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """Start moto, which simulates AWS, and yield it."""
    service = start("moto.sh", tmp_path_factory.mktemp("moto"), "/moto-api/")
    yield service
    service.stop()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """Start an MLflow tracking server with a SQLite database, and yield it."""
    service = start("mlflow.sh", tmp_path_factory.mktemp("mlflow"), "/health")
    yield service
    service.stop()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials that moto accepts, for this process and its children."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def bucket(moto: HttpServer, aws: None, request: pytest.FixtureRequest) -> str:
    """Create a bucket, and return its name."""
    import s3fs

    name = f"bucket-{abs(hash(request.node.nodeid)) % 10**12}"
    s3fs.S3FileSystem(client_kwargs={"endpoint_url": moto.url}, skip_instance_cache=True).mkdir(
        name
    )
    return name


@pytest.fixture
def s3_config(moto: HttpServer, bucket: str) -> str:
    """Return the content of the configuration file of an fsspec tracker on S3."""
    return f"protocol=s3\nroot_path={bucket}/runs\nclient_kwargs.endpoint_url={moto.url}\n"


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a Python with a release of upstream's TorchX, without our distributions.

    Without an existing environment, install the release into a new one.
    """
    built = ROOT / ".nox" / "benchmarks" / "peer"
    for environment in (os.environ.get("TORCHX_BENCH_PEER"), str(built)):
        if environment and (Path(environment) / "bin" / "python").exists():
            return str(Path(environment) / "bin" / "python")
    folder = tmp_path_factory.mktemp("peer")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True)
    return python
