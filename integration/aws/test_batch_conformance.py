"""The conformance suite on ``aws_batch``.

Jobs of one node run through moto and the Docker Engine. The double runs the tests that moto cannot
run. If the variable ``TORCHX_TEST_AWS_QUEUE`` names a real queue, the suite runs there, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import pytest
from aws_double import AwsDouble
from aws_double_secrets import EXECUTION_ROLE
from aws_moto import QUEUE, Moto
from docker_engine import BUSYBOX

from torchx_runner import Runner
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_specs import AppDef, VolumeMount
from torchx_testing.hostile import HostileValue
from torchx_testing.scheduler_suite import SchedulerConformance

SEVERAL_NODES = "moto tells of no nodes, and has one log for all of them; the double does both"


TOO_LARGE = "a job definition has 24 KiB at most; larger ones are refused before submission"


class BatchConformance(SchedulerConformance):
    """The conformance suite, with the settings that are the same for all endpoints."""

    scheduler_name = "aws_batch"
    cannot_carry = {"size: long": TOO_LARGE}

    def _why_not(self, value: HostileValue) -> str | None:
        return self.cannot_carry.get(value.name)  # the whole name, not a prefix of it


class TestBatchThroughMoto(BatchConformance):
    """Jobs of one node, in containers."""

    image = BUSYBOX
    unsupported = {
        "exit_code": "moto's DescribeJobs tells no exit code",
        "retries": "moto does not retry",
        "requeue": "moto does not retry",
        "several_roles": SEVERAL_NODES,
        "rank0": SEVERAL_NODES,
        "describe_roles": SEVERAL_NODES,
        "undecodable_output": "moto fails a job whose output is not UTF-8",
        "secrets": "moto's containers get no secrets; those of the double do",
    }
    poll_interval = 0.1

    @pytest.fixture
    def scheduler(self, use_moto: Moto, quick: None) -> Iterator[AWSBatchScheduler]:
        scheduler = AWSBatchScheduler("conformance", log_delay=1)
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        # In moto, the child of an array job does not get its index, so submit single jobs.
        return {"queue": QUEUE, "array": False}

    @pytest.fixture(autouse=True)
    def _pending(self, use_moto: Moto, request: pytest.FixtureRequest) -> Iterator[None]:
        """Set options with which an app waits for another job, for the test of a pending app."""
        if "cancel_a_pending" not in request.node.name:
            yield
            return
        batch = AWSBatchScheduler("other")
        role = self.sh("sleep 86400")
        job = batch.submit(AppDef("long", [role]), {"queue": QUEUE})
        found = batch.describe(job)
        assert found is not None
        type(self).pending_cfg = {"depends_on": [found.metadata["aws_batch/job_id"]]}
        yield
        batch.cancel(job)
        batch.close()

    def _not_here(self, what: str, reason: str) -> NoReturn:
        self.declare(what, reason)
        pytest.skip(f"not through moto: {what}: {reason}")

    def test_one_failed_replica_fails_the_app(self) -> None:  # type: ignore[override]
        self._not_here("several replicas", SEVERAL_NODES)

    def test_logs_of_several_replicas_arrive_whole_and_in_order(  # type: ignore[override]
        self,
    ) -> None:
        self._not_here("several replicas", SEVERAL_NODES)

    def test_lines_come_while_the_job_runs(self) -> None:  # type: ignore[override]
        self._not_here("lines of a job that runs", "moto writes the log when the job has ended")

    def test_closing_ends_the_threads_that_follow_and_wait(self) -> None:  # type: ignore[override]
        self._not_here("lines of a job that runs", "moto writes the log when the job has ended")

    def test_odd_lines_stay_whole(self) -> None:  # type: ignore[override]
        self._not_here("odd lines", "moto strips lines, and cuts what Docker's log keeps in parts")


class TestBatchThroughDouble(BatchConformance):
    """Tests of single-node jobs that moto cannot run."""

    image = "any"
    python = sys.executable
    poll_interval = 0.05
    pending_cfg = {"queue": "full"}

    @pytest.fixture
    def scheduler(self, scheduler: AWSBatchScheduler) -> AWSBatchScheduler:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return {"queue": QUEUE, "execution_role_arn": EXECUTION_ROLE}

    @pytest.fixture
    def store_secret(self, use_double: AwsDouble) -> Callable[[str, str, str], object]:
        return use_double.secretsmanager.store

    def test_exit_code_75_starts_another_attempt(  # type: ignore[override]
        self,
        runner: Runner,
        cfg: dict[str, Any],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        volume = VolumeMount("fs-12345678", str(tmp_path))
        monkeypatch.setattr(self, "sh", partial(self.sh, mounts=[volume]))
        cfg["resume_dir"] = str(tmp_path / "resume")
        super().test_exit_code_75_starts_another_attempt(runner, cfg)


#: The conformance tests that TestBatchThroughDouble runs; moto runs some of them, too.
LEFT_OUT_BY_MOTO = {
    "test_failure_and_its_code",
    "test_retries",
    "test_no_retry_of_what_succeeds",
    "test_log_is_followed_to_the_end",
    "test_lines_come_while_the_job_runs",
    "test_closing_ends_the_threads_that_follow_and_wait",
    "test_log_by_regular_expression",
    "test_odd_lines_stay_whole",
    "test_output_that_is_not_utf8",
    "test_last_line_without_newline",
    "test_cancel_a_pending_app",
    "test_exit_code_75_starts_another_attempt",
    "test_delete",
    "test_describe",
    "test_hostile_values",
    "test_a_secret_reaches_the_program_and_nothing_shows_it",
    "test_an_app_without_its_secret_does_not_run",
}
for _name in dir(SchedulerConformance):
    if _name.startswith("test_") and _name not in LEFT_OUT_BY_MOTO:
        setattr(TestBatchThroughDouble, _name, None)

#: Name of a job queue in a real account, or at AWS_ENDPOINT_URL; if empty, there is no
#: TestBatchReal.
REAL_QUEUE = os.environ.get("TORCHX_TEST_AWS_QUEUE", "")


if REAL_QUEUE:

    class TestBatchReal(BatchConformance):
        """Tests on a real account; TORCHX_TEST_AWS_IMAGE may name an image with ``sh``."""

        image = os.environ.get("TORCHX_TEST_AWS_IMAGE", "public.ecr.aws/docker/library/busybox:1")
        unsupported: ClassVar[dict[str, str]] = {
            "cancel_pending": "a real queue starts jobs when it can",
            "secrets": "they cost money, and need a role of the account",
            "requeue": "it needs an EFS volume",
        }
        timeout = 900.0
        poll_interval = 5.0

        @pytest.fixture
        def scheduler(self) -> Iterator[AWSBatchScheduler]:
            scheduler = AWSBatchScheduler("conformance")
            yield scheduler
            scheduler.close()

        @pytest.fixture
        def cfg(self) -> dict[str, Any]:
            return {"queue": REAL_QUEUE}
