"""AWS Batch through moto, which runs the jobs in containers of a Docker Engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import registry
from aws_moto import QUEUE, Moto
from docker_engine import BUSYBOX

from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_specs import AppDef, BindMount, Resource, Role
from torchx_workspace_docker.registry.credentials import credentials_for

RESOURCE = Resource(cpu=1, gpu=0, memMB=64)


@pytest.fixture
def scheduler(use_moto: Moto, quick: None) -> Iterator[AWSBatchScheduler]:
    scheduler = AWSBatchScheduler("test", log_delay=1)
    yield scheduler
    scheduler.close()


def test_mounts_and_unusual_variables(scheduler: AWSBatchScheduler, tmp_path: Any) -> None:
    (tmp_path / "file").write_text("from the host")
    role = Role(
        "main",
        BUSYBOX,
        entrypoint="sh",
        args=["-c", 'cat /in/file; echo; echo "[${E-unset}] $A $TORCHX_ROLE_NAME"'],
        env={"E": "", "A": "a b"},
        resource=RESOURCE,
        mounts=[BindMount(str(tmp_path), "/in", True)],
    )
    app_id = scheduler.submit(AppDef("app", [role]), {"queue": QUEUE})
    lines = list(scheduler.log_iter(app_id, "main", should_tail=True))
    assert lines == ["from the host\n", "[] a b main\n"]


def test_messages_of_the_sdk_are_shown_at_the_log_level_debug_only(
    torchx: Any, environment: dict[str, str], use_moto: Moto
) -> None:
    environment.update(use_moto.variables)
    message = "Found credentials"
    listed = torchx("list", "-s", "aws_batch")
    assert listed.returncode == 0, listed.stderr
    assert message not in listed.stderr
    assert message in torchx("--log_level", "DEBUG", "list", "-s", "aws_batch").stderr


def test_workspace_is_built_into_an_image(
    torchx: Any,
    environment: dict[str, str],
    use_moto: Moto,
    engine: dict[str, str],
    tmp_path: Path,
) -> None:
    """The client builds and pushes the image without a Docker Engine; the job's engine pulls it."""
    environment.update(use_moto.variables)
    folder = Path(tempfile.mkdtemp(prefix="torchx-registry-"))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "main.sh").write_text("echo from the workspace\n")
    try:
        name = registry.start(folder)
        base = f"{name}/base/busybox:1"
        for words in (("tag", BUSYBOX, base), ("push", "-q", base)):
            subprocess.run(
                ["docker", *words],
                env={**os.environ, **engine},
                check=True,
                capture_output=True,
            )
        environment["DOCKER_HOST"] = "unix:///no/such/socket"
        cfg = f"queue={QUEUE},image_repo={name}/train"
        words = ("-s", "aws_batch", "-cfg", cfg, "--workspace", str(workspace), "utils.sh")
        run = torchx("run", "--wait", *words, "--image", base, "sh", "main.sh")
        assert run.returncode == 0, run.stderr
        assert "from the workspace" in torchx("log", run.stdout.split()[0]).stdout
    finally:
        registry.stop(folder)
        shutil.rmtree(folder)


def test_push_to_ecr_without_docker_login(use_moto: Moto) -> None:
    found = credentials_for("123456789012.dkr.ecr.us-east-1.amazonaws.com")
    assert found is not None
    assert found.user == "AWS"
    assert found.secret
