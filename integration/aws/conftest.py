"""AWS endpoints: moto with a Docker Engine, and a double for what moto does not do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import docker_engine
from aws_double import AwsDouble

SERVICES = Path(docker_engine.__file__).parent
#: Addresses for this engine's networks, which those of other suites do not use.
ADDRESSES = "10.216.0.0/16"
NETWORK = "torchx-moto"
REGION = "us-east-1"
QUEUE = "queue"


class Moto:
    """moto's server, in a process of its own.

    Args:
        folder: where its log goes
        engine: the variables with which it finds the Docker Engine
    """

    def __init__(self, folder: Path, engine: dict[str, str]) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{port}"
        self.variables = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        environment = {**os.environ, **engine, "MOTO_DOCKER_NETWORK_NAME": NETWORK}
        environment["PATH"] = f"{Path(sys.prefix) / 'bin'}{os.pathsep}{environment['PATH']}"
        self._log = folder / "moto.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(SERVICES / "moto.sh"), str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.stop()
                pytest.fail(f"moto does not come up: {self.log()[-3000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5):  # noqa: S310 - http
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def log(self) -> str:
        """Returns what it has printed."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Ends it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


@pytest.fixture(scope="session")
def engine() -> Iterator[dict[str, str]]:
    """The variables with which clients find the Docker Engine."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-aws-"))
    try:
        variables = docker_engine.start(folder, python=True, addresses=ADDRESSES)
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
    """An endpoint with a job queue; its jobs run in containers."""
    server = Moto(tmp_path_factory.mktemp("moto"), engine)
    try:
        make_queue(server.variables)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def double() -> Iterator[AwsDouble]:
    """A double with a job queue; its jobs are processes of this machine."""
    double = AwsDouble()
    double.batch.add_queue(QUEUE)
    yield double
    double.close()
    double.check()


def make_queue(variables: dict[str, str]) -> None:
    """Makes roles, a compute environment and the job queue in moto."""
    import boto3

    def client(service: str) -> object:
        return boto3.client(
            service,
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    iam, batch, ec2 = client("iam"), client("batch"), client("ec2")
    role = iam.create_role(  # type: ignore[attr-defined]
        RoleName="batch", AssumeRolePolicyDocument="{}"
    )["Role"]["Arn"]
    subnets = [s["SubnetId"] for s in ec2.describe_subnets()["Subnets"]]  # type: ignore[attr-defined]
    groups = ec2.describe_security_groups()["SecurityGroups"]  # type: ignore[attr-defined]
    environment = batch.create_compute_environment(  # type: ignore[attr-defined]
        computeEnvironmentName="environment",
        type="MANAGED",
        state="ENABLED",
        computeResources={
            "type": "FARGATE",
            "maxvCpus": 10,
            "subnets": subnets[:1],
            "securityGroupIds": [groups[0]["GroupId"]],
        },
        serviceRole=role,
    )["computeEnvironmentArn"]
    for name, state in ((QUEUE, "ENABLED"), ("disabled", "DISABLED")):
        batch.create_job_queue(  # type: ignore[attr-defined]
            jobQueueName=name,
            state=state,
            priority=1,
            computeEnvironmentOrder=[{"order": 1, "computeEnvironment": environment}],
        )


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration of AWS but what a test sets."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def use_moto(aws: None, moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Moto:
    """This process and those it starts talk to moto."""
    for name, value in moto.variables.items():
        monkeypatch.setenv(name, value)
    return moto


@pytest.fixture
def use_double(
    aws: None, double: AwsDouble, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AwsDouble]:
    """This process and those it starts talk to the double."""
    for name, value in double.variables.items():
        monkeypatch.setenv(name, value)
    double.reset()
    yield double
    double.reset()
