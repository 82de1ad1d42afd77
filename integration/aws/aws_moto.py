"""The server of moto, a mock of AWS, with a job queue whose jobs run in a Docker Engine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from patience import wait_for

SERVER = Path(__file__).resolve().parent / "moto_quick.py"
#: IP addresses of this Docker Engine's networks; the engines of other suites have other addresses.
ADDRESSES = "10.216.0.0/16"
NETWORK = "torchx-moto"
REGION = "us-east-1"
QUEUE = "queue"


class Moto:
    """moto's server, in a separate process.

    Args:
        folder: Directory for the server's log.
        engine: Environment variables with which the server finds the Docker Engine.
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
        self._log = folder / "moto.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), "-H", "127.0.0.1", "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        try:
            wait_for(lambda: self._process.poll() is not None or self._answers(), self.log)
            assert self._process.poll() is None, self.log()[-3000:]
        except AssertionError:
            self.stop()
            raise

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5):  # noqa: S310 - http
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def log(self) -> str:
        """Return the output of the server."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stop the server."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def make_queue(variables: dict[str, str]) -> None:
    """Create roles, a compute environment and the job queue in moto."""
    import boto3

    def client(service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=variables["AWS_ENDPOINT_URL"],
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    iam, batch = client("iam"), client("batch")
    role = iam.create_role(RoleName="batch", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    environment = batch.create_compute_environment(
        computeEnvironmentName="environment",
        type="UNMANAGED",
        state="ENABLED",
        serviceRole=role,
    )["computeEnvironmentArn"]
    for name, state in ((QUEUE, "ENABLED"), ("disabled", "DISABLED")):
        batch.create_job_queue(
            jobQueueName=name,
            state=state,
            priority=1,
            computeEnvironmentOrder=[{"order": 1, "computeEnvironment": environment}],
        )
