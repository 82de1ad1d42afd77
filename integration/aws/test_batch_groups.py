"""The conformance suite of groups on AWS Batch, through the double."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_double_secrets import EXECUTION_ROLE
from aws_moto import QUEUE

from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_testing.group_suite import GroupConformance


class TestBatchGroups(GroupConformance):
    scheduler_name = "aws_batch"
    poll_interval = 0.1
    image = "image"

    @pytest.fixture(autouse=True)
    def _home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))

    @pytest.fixture
    def scheduler(self, scheduler: AWSBatchScheduler) -> AWSBatchScheduler:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return {"queue": QUEUE, "execution_role_arn": EXECUTION_ROLE}
