"""The server of moto, a mock of AWS, with a job queue whose jobs run in a Docker Engine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from http_server import HttpServer

SERVER = Path(__file__).resolve().parent / "moto_quick.py"
#: IP addresses of this Docker Engine's networks; the engines of other suites have other addresses.
ADDRESSES = "10.216.0.0/16"
NETWORK = "torchx-moto"
REGION = "us-east-1"
QUEUE = "queue"


class Moto(HttpServer):
    """moto's server, in a separate process.

    Args:
        folder: Directory for the server's log.
        engine: Environment variables with which the server finds the Docker Engine.
    """

    def __init__(self, folder: Path, engine: dict[str, str]) -> None:
        super().__init__(
            lambda port: [sys.executable, str(SERVER), "-H", "127.0.0.1", "-p", str(port)],
            "/moto-api/",
            folder / "moto.log",
            {**os.environ, **engine, "MOTO_DOCKER_NETWORK_NAME": NETWORK},
        )
        self.variables = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


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
