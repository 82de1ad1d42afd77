"""Tests of ``aws_sagemaker`` on the AWS double, in which every instance is a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aws_double import AwsDouble, Fault
from resilience import resilient_loop

from patience import wait_for
from torchx_sched_aws.client import AwsError
from torchx_sched_aws.sagemaker.scheduler import AWSSageMakerScheduler
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.overlays import set_overlay
from torchx_specs.schedulers import DescribeAppResponse
from torchx_testing.hostile import HostileValue
from torchx_testing.scheduler_suite import SchedulerConformance

ROLE = "arn:aws:iam::123456789012:role/Trainer"
CFG: dict[str, Any] = {"role": ROLE, "instance_type": "ml.m5.large"}

Ended = Callable[[str], DescribeAppResponse]


@pytest.fixture
def scheduler(use_double: AwsDouble, quick: None) -> Iterator[AWSSageMakerScheduler]:
    """Yield a scheduler that uses the double of SageMaker."""
    scheduler = AWSSageMakerScheduler("test", log_delay=0.3)
    yield scheduler
    scheduler.close()


def app(script: str = "true", name: str = "train", **fields: Any) -> AppDef:
    fields.setdefault("args", ["-c", script])
    return AppDef(name, [Role("worker", "an/image:1", entrypoint="sh", **fields)])


class TestConformance(SchedulerConformance):
    """The conformance suite; each instance is a process of the double."""

    scheduler_name = "aws_sagemaker"
    image = "an/image:1"
    python = sys.executable
    poll_interval = 0.1
    pending_cfg: ClassVar[dict[str, Any]] = {}
    cannot_carry: ClassVar[dict[str, str]] = {
        "size: long": "SageMaker carries 50,176 characters of command and long variables"
    }

    @pytest.fixture
    def scheduler(self, double: AwsDouble, scheduler: AWSSageMakerScheduler) -> Any:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return dict(CFG)

    def resource(self) -> Resource:
        return Resource(cpu=1, gpu=0, memMB=64)

    def _why_not(self, value: HostileValue) -> str | None:
        return self.cannot_carry.get(value.name)  # the whole name, not a prefix of it

    def test_cancel_a_pending_app(self, double: AwsDouble, runner: Any, cfg: Any) -> None:  # type: ignore[override]
        double.sagemaker.pending = True
        super().test_cancel_a_pending_app(runner, cfg)


REAL_ROLE = os.environ.get("TORCHX_TEST_SAGEMAKER_ROLE", "")


@pytest.mark.skipif(
    not REAL_ROLE, reason="no TORCHX_TEST_SAGEMAKER_ROLE: the ARN of a role in a real account"
)
class TestSageMakerReal(TestConformance):
    """The conformance suite on a real account.

    TORCHX_TEST_SAGEMAKER_IMAGE must name an image in the account's ECR that contains ``sh``, and
    TORCHX_TEST_SAGEMAKER_OUTPUT an ``s3://`` prefix for the output.
    """

    image = os.environ.get("TORCHX_TEST_SAGEMAKER_IMAGE", "")
    python = ""
    unsupported: ClassVar[dict[str, str]] = {
        "cancel_pending": "a real account starts jobs when it can",
    }
    timeout = 1800.0
    poll_interval = 10.0

    @pytest.fixture
    def scheduler(self) -> Iterator[AWSSageMakerScheduler]:  # type: ignore[override]
        scheduler = AWSSageMakerScheduler("conformance")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        output = os.environ.get("TORCHX_TEST_SAGEMAKER_OUTPUT")
        return {"role": REAL_ROLE, "instance_type": "ml.m5.large", "output_path": output}

    def test_cancel_a_pending_app(self, runner: Any, cfg: Any) -> None:  # type: ignore[override]
        SchedulerConformance.test_cancel_a_pending_app(self, runner, cfg)


def test_request_equals_the_dry_run(
    double: AwsDouble, scheduler: AWSSageMakerScheduler, ended: Ended
) -> None:
    cfg = {
        **CFG,
        "instance_count": 2,
        "use_spot_instances": True,
        "max_run": 600,
        "max_wait": 900,
        "checkpoint_s3_uri": "s3://bucket/checkpoints",
        "subnets": ["subnet-1"],
        "security_group_ids": ["sg-1"],
        "hyperparameters": {"lr": "0.1"},
        "tags": "team:vision",
        "metric_definitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
        "enable_infra_check": True,
        "model_uri": "s3://bucket/model",
    }
    job = app("echo $GREETING", env={"GREETING": "hello"})
    set_overlay(
        job,
        "aws_sagemaker",
        "CreateTrainingJob",
        {"RemoteDebugConfig": {"EnableRemoteDebug": True}},
    )
    info = scheduler.submit_dryrun(job, cfg)
    assert not double.counts
    app_id = scheduler.schedule(info)
    (call,) = [call for call in double.calls if call.name == "CreateTrainingJob"]
    assert call.params == info.request.job_def
    assert ended(app_id).state == AppState.SUCCEEDED
    for k in range(2):
        assert list(scheduler.log_iter(app_id, "worker", k)) == ["hello\n"]
    tags = {tag["Key"]: tag["Value"] for tag in call.params["Tags"]}
    assert tags["team"] == "vision"
    assert tags["torchx.pytorch.org/app-name"] == "train"


def test_job_that_exceeds_its_time_limit_is_failed(
    double: AwsDouble, scheduler: AWSSageMakerScheduler, ended: Ended
) -> None:
    double.sagemaker.runtime_scale = 0.001
    app_id = scheduler.submit(app("exec sleep 86400"), {**CFG, "max_run": 300})
    found = ended(app_id)
    assert found.state == AppState.FAILED
    assert found.msg.startswith("MaxRuntimeExceeded")


def test_following_continues_through_a_restart(
    double: AwsDouble, scheduler: AWSSageMakerScheduler, tmp_path: Path
) -> None:
    mark = tmp_path / "ran before"
    job = app(
        'echo begin; [ -e "$MARK" ] && exit; touch "$MARK"; exec sleep 86400',
        env={"MARK": str(mark)},
    )
    app_id = scheduler.submit(job, {**CFG, "use_spot_instances": True})
    lines = iter(scheduler.log_iter(app_id, "worker", should_tail=True))
    assert next(lines) == "begin\n"
    wait_for(mark.exists)
    double.sagemaker.interrupt(app_id)
    assert list(lines) == ["begin\n"]
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert list(scheduler.log_iter(app_id, "worker")) == ["begin\n"] * 2


def test_library_goes_on_after_a_spot_interruption(
    double: AwsDouble, scheduler: AWSSageMakerScheduler, ended: Ended, tmp_path: Path
) -> None:
    # The double leaves the folder of the checkpoints where it is; SageMaker copies it through S3.
    folder = str(tmp_path / "checkpoints")
    role = Role(
        *("worker", "an/image:1"),
        entrypoint=sys.executable,
        args=[resilient_loop.__file__, str(tmp_path), "outside"],
        env={"TORCHX_RESUME_DIR": folder},
    )
    spot = {"use_spot_instances": True, "checkpoint_s3_uri": "s3://bucket/checkpoints"}
    app_id = scheduler.submit(AppDef("loop", [role]), {**CFG, **spot})
    wait_for((tmp_path / "pid-0").exists)
    double.sagemaker.interrupt(app_id)
    (tmp_path / "go").touch()
    found = ended(app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert resilient_loop.check(tmp_path, 1) == ["none", "none"]


def test_list_has_new_jobs_that_search_does_not_find_yet(
    double: AwsDouble, scheduler: AWSSageMakerScheduler
) -> None:
    app_id = scheduler.submit(app(), CFG)
    double.sagemaker.unindexed.add(app_id)
    assert [item.app_id for item in scheduler.list()] == [app_id]


def test_throttled_requests_are_retried(
    double: AwsDouble, scheduler: AWSSageMakerScheduler
) -> None:
    double.faults.append(Fault("CreateTrainingJob", "throttling", times=2))
    app_id = scheduler.submit(app(), CFG)
    assert double.counts["CreateTrainingJob"] == 3
    assert scheduler.describe(app_id) is not None


def test_errors_of_sagemaker_are_reported(
    double: AwsDouble, scheduler: AWSSageMakerScheduler, ended: Ended
) -> None:
    double.sagemaker.refused_roles.add(ROLE)
    with pytest.raises(ValueError, match="Could not assume role"):
        scheduler.submit(app(), CFG)
    double.sagemaker.refused_roles.clear()
    double.sagemaker.limits.add("ml.m5.large")
    with pytest.raises(AwsError, match="service limit"):
        scheduler.submit(app(), CFG)
    double.sagemaker.limits.clear()
    double.sagemaker.missing_images.add("an/image:1")
    found = ended(scheduler.submit(app(), CFG))
    assert found.state == AppState.FAILED
    assert "Cannot pull the training image" in found.msg


def test_unknown_field_is_an_error_before_the_request(
    double: AwsDouble, scheduler: AWSSageMakerScheduler
) -> None:
    job = app()
    set_overlay(job, "aws_sagemaker", "CreateTrainingJob", {"NoSuchField": 1})
    with pytest.raises(ValueError, match="NoSuchField"):
        scheduler.submit(job, CFG)
    assert not double.counts


def test_lost_response_of_a_created_job_is_not_an_error(
    double: AwsDouble, scheduler: AWSSageMakerScheduler
) -> None:
    info = scheduler.submit_dryrun(app("sleep 1"), CFG)
    assert scheduler.schedule(info) == scheduler.schedule(info)
