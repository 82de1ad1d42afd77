"""Batch jobs of one node and of several, through a double that runs them as processes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_double import AwsDouble, Fault
from aws_double_secrets import EXECUTION_ROLE
from aws_moto import QUEUE

from patience import wait_for
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_specs import AppDef, AppState, Resource, Role, secret
from torchx_specs.overlays import set_overlay
from torchx_specs.schedulers import DescribeAppResponse

RESOURCE = Resource(cpu=1, gpu=0, memMB=64)
Ended = Callable[[str], DescribeAppResponse]


def shell(script: str, name: str = "main", **fields: Any) -> Role:
    args = ["-c", script]
    return Role(name, "image", entrypoint="sh", args=args, resource=RESOURCE, **fields)


def submit(scheduler: AWSBatchScheduler, *roles: Role, name: str = "app", **cfg: Any) -> str:
    return scheduler.submit(AppDef(name, list(roles)), {"queue": QUEUE, **cfg})


def log(scheduler: AWSBatchScheduler, app_id: str, role: str = "main", k: int = 0) -> list[str]:
    return [line.rstrip("\n") for line in scheduler.log_iter(app_id, role, k)]


@pytest.mark.parametrize("replicas", [1, 2])
def test_programs_receive_secrets_and_no_answer_contains_them(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble, replicas: int
) -> None:
    use_double.secretsmanager.values = {"hf": "p4ss $x", "db": '{"user": "u", "pass": "p4ss 2"}'}
    env = {"HF_TOKEN": secret("hf"), "PASSWORD": secret("db", "pass")}
    role = shell('printf "%s|%s" "$HF_TOKEN" "$PASSWORD" | sha256sum', env=env)
    role.num_replicas = replicas
    app_id = submit(scheduler, role, execution_role_arn=EXECUTION_ROLE)
    found = ended(app_id)
    assert found.state == AppState.SUCCEEDED, found
    digest = hashlib.sha256(b"p4ss $x|p4ss 2").hexdigest()
    for k in range(replicas):
        assert log(scheduler, app_id, "main", k) == [f"{digest}  -"]
    assert {name: found.roles[0].env[name] for name in env} == env
    assert "p4ss" not in repr(found)
    submit(scheduler, role, execution_role_arn=EXECUTION_ROLE)
    assert use_double.counts["RegisterJobDefinition"] == 1


def test_reclaimed_instance_is_retried_by_its_reason(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble
) -> None:
    script = 'echo "try $AWS_BATCH_JOB_ATTEMPT"; [ $AWS_BATCH_JOB_ATTEMPT = 1 ] && exec sleep 86400'
    app = AppDef("app", [shell(f"{script}; exit 5", max_retries=3)])
    rules = [
        {"onStatusReason": "Host EC2*", "action": "RETRY"},
        {"onStatusReason": "*", "action": "EXIT"},
    ]
    strategy = {"attempts": 4, "evaluateOnExit": rules}
    set_overlay(app, "aws_batch", "JobDefinition", {"retryStrategy": strategy})
    app_id = scheduler.submit(app, {"queue": QUEUE})
    assert next(iter(scheduler.log_iter(app_id, "main", should_tail=True))) == "try 1\n"
    use_double.batch.reclaim(app_id.partition(":")[2])
    found = ended(app_id)
    # The second attempt fails by itself, which does not match the rule, so it is the last one.
    assert (found.state, found.num_restarts) == (AppState.FAILED, 1)
    assert log(scheduler, app_id) == ["try 1", "try 2"]
    assert found.roles_statuses[0].replicas[0].exit_code == 5


@pytest.mark.parametrize("replicas", [1, 2])
def test_container_that_cannot_start_has_a_reason(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble, replicas: int
) -> None:
    use_double.batch.missing_images.add("image")
    refused = "arn:aws:iam::123456789012:role/refused"
    use_double.batch.refused_roles.add(refused)
    missing = ended(submit(scheduler, shell("true", num_replicas=replicas)))
    use_double.batch.missing_images.clear()
    role = ended(
        submit(scheduler, shell("true", num_replicas=replicas), execution_role_arn=refused)
    )
    assert (missing.state, role.state) == (AppState.FAILED, AppState.FAILED)
    assert "CannotPullContainerError" in missing.msg
    assert "pull access denied for image" in missing.msg
    assert "unable to assume the role" in role.msg


def test_waiting_job_has_a_reason(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble
) -> None:
    reason = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - no machine is large enough"
    use_double.batch.add_queue("small", slots=0, reason=reason)
    app_id = submit(scheduler, shell("true", num_replicas=2), queue="small")
    wait_for(lambda: scheduler.describe(app_id).msg.startswith(reason))  # type: ignore[union-attr]
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state == AppState.PENDING
    expected = (
        f"{reason}: the job requests more than the compute environments of its queue can have"
    )
    assert found.msg.startswith(expected)
    assert [r.reason for r in found.roles_statuses[0].replicas] == [found.msg] * 2
    scheduler.cancel(app_id)
    assert ended(app_id).state == AppState.CANCELLED


def test_timed_out_job_has_a_reason(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble
) -> None:
    use_double.batch.timeout_scale = 0.01
    found = ended(submit(scheduler, shell("exec sleep 86400"), timeout=60))
    assert found.state == AppState.FAILED
    assert "timeout" in found.msg


def test_following_continues_after_expired_credentials(
    scheduler: AWSBatchScheduler,
    use_double: AwsDouble,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    credentials = tmp_path / "credentials"

    def write(key: str) -> None:
        credentials.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=x\n")

    write("FIRST")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    app_id = submit(scheduler, shell("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.2; done"))
    lines = iter(scheduler.log_iter(app_id, "main", should_tail=True))
    assert next(lines) == "line 1\n"
    first = scheduler._clients.client("logs")
    use_double.faults.append(Fault("*", "expired", key="FIRST"))
    threading.Timer(0.7, write, ["SECOND"]).start()
    assert list(lines) == [f"line {i}\n" for i in range(2, 7)]
    second = scheduler._clients.client("logs")
    keys = [c._request_signer._credentials.access_key for c in (first, second)]
    assert keys == ["FIRST", "SECOND"]


def test_batch_holds_a_job_until_another_one_has_succeeded(
    scheduler: AWSBatchScheduler, ended: Ended, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    first = submit(scheduler, shell(f"until [ -e {gate} ]; do sleep 0.1; done"))
    cfg = scheduler.with_dependency({}, first, "ok")
    assert cfg is not None
    second = submit(scheduler, shell(f"test -e {gate}"), **cfg)
    found = scheduler.describe(second)
    assert found is not None
    assert found.state == AppState.PENDING
    gate.touch()
    assert ended(second).state == AppState.SUCCEEDED
    assert scheduler.with_dependency({}, first, "any") is None
