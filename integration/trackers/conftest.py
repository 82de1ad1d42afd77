"""Fixtures: the services that trackers use, and a release of upstream's TorchX (the peer)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SERVICES = ROOT / "integration" / "services"
PEER = "torchx-nightly==2026.10.26"


class Service:
    """A server that a script in ``integration/services`` runs, on a free port.

    Args:
        script: The name of the script.
        folder: The folder for the server's files.
        ready: The path of a URL; the server responds to this URL once it is ready.
    """

    def __init__(self, script: str, folder: Path, ready: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / f"{script}.log"
        environment = dict(os.environ)
        environment["PATH"] = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{environment['PATH']}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(SERVICES / script), str(self.port), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        while self._process.poll() is None and not self._answers(ready):
            time.sleep(0.1)
        if self._process.returncode is not None:
            pytest.fail(f"{script} has ended:\n{self._log.read_text(errors='replace')[-3000:]}")

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5):  # noqa: S310 - http
                return True
        except OSError as e:
            return isinstance(e, urllib.error.HTTPError)

    def stop(self) -> None:
        """End the server and the processes that it has started, if it runs."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(3)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start moto, which simulates AWS, and yield it."""
    service = Service("moto.sh", tmp_path_factory.mktemp("moto"), "/moto-api/")
    yield service
    service.stop()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Start an MLflow tracking server with a SQLite database, and yield it."""
    service = Service("mlflow.sh", tmp_path_factory.mktemp("mlflow"), "/health")
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
def bucket(moto: Service, aws: None, request: pytest.FixtureRequest) -> str:
    """Create a bucket, and return its name."""
    import s3fs

    name = f"bucket-{abs(hash(request.node.nodeid)) % 10**12}"
    s3fs.S3FileSystem(client_kwargs={"endpoint_url": moto.url}, skip_instance_cache=True).mkdir(
        name
    )
    return name


@pytest.fixture
def s3_config(moto: Service, bucket: str) -> str:
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
