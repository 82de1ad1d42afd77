"""AWS endpoints: moto with a Docker Engine, and a double for features that moto lacks."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import docker_engine
from aws_double import AwsDouble
from aws_moto import ADDRESSES, NETWORK, QUEUE, Moto, make_queue

from torchx_sched_aws.batch.scheduler import AWSBatchScheduler


@pytest.fixture(scope="session", autouse=True)
def _models() -> Iterator[None]:
    """Load the SDK's models once for all tests, because loading takes longer than most jobs."""
    loader = botocore.session.create_loader()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", lambda *_: loader)
        yield


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """Start a Docker Engine; yield the environment variables that direct clients to it."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-aws-"))
    try:
        variables = docker_engine.start(folder, addresses=ADDRESSES)
        subprocess.run(
            ["docker", "network", "create", NETWORK],
            env={**os.environ, **variables},
            check=True,
            capture_output=True,
        )
        yield variables
    finally:
        docker_engine.destroy(folder)


@pytest.fixture(scope="session")
def moto(engine: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    """Start moto with a job queue, whose jobs run in containers, and yield the server."""
    server = Moto(tmp_path_factory.mktemp("moto"), engine)
    try:
        make_queue(server.variables)
        yield server
    finally:
        server.stop()


@pytest.fixture
def double() -> Iterator[AwsDouble]:
    """Yield a double with two queues: one runs jobs as processes, the other keeps them waiting."""
    double = AwsDouble()
    double.batch.add_queue(QUEUE)
    double.batch.add_queue("full", slots=0)
    yield double
    double.close()
    double.check()


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove AWS's environment variables and configuration files from the environment."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def use_moto(aws: None, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Moto:
    """Direct this process and its children to moto, and return the server."""
    for name, value in moto.variables.items():
        monkeypatch.setenv(name, value)
    return moto


@pytest.fixture
def use_double(aws: None, double: AwsDouble, monkeypatch: pytest.MonkeyPatch) -> AwsDouble:
    """Direct this process and its children to the double, and return the double."""
    for name, value in double.variables.items():
        monkeypatch.setenv(name, value)
    return double


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between polls."""
    monkeypatch.setattr("torchx_sched_aws.cloudwatch.POLL_PAUSES", (0.05, 0.2))
    monkeypatch.setattr("torchx_sched_aws.sagemaker.scheduler.STOP_PAUSES", (0.05, 0.2))


@pytest.fixture
def scheduler(use_double: AwsDouble, quick: None) -> Iterator[AWSBatchScheduler]:
    """Yield a scheduler that uses the double of Batch."""
    scheduler = AWSBatchScheduler("conformance", log_delay=0.5)
    yield scheduler
    scheduler.close()
