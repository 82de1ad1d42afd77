"""``aws_batch`` with multi-node jobs, through the AWS double: every node is a process."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aws_double import AwsDouble, Fault
from aws_double_secrets import EXECUTION_ROLE

from torchx_runner import Runner
from torchx_sched_aws.batch.request import DEFINITION_PREFIX
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_sched_aws.client import LOG_REQUESTS_PER_SECOND, RateLimit
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse
from torchx_testing.hostile import HostileValue
from torchx_testing.scheduler_suite import SchedulerConformance

DOUBLE = Path(__file__).resolve().parent / "aws_double.py"
CFG = {"queue": "queue"}
Ended = Callable[[str], DescribeAppResponse]


def sh(script: str, name: str = "worker", **fields: Any) -> Role:
    fields.setdefault("num_replicas", 2)
    resource = Resource(cpu=1, gpu=0, memMB=64)
    return Role(name, "any", entrypoint="sh", args=["-c", script], resource=resource, **fields)


def app(*roles: Role) -> AppDef:
    return AppDef("app", list(roles))


class TestConformanceOfSeveralNodes(SchedulerConformance):
    """The conformance suite with two nodes for each role, unless a test sets another number."""

    scheduler_name = "aws_batch"
    image = "any"
    python = sys.executable
    poll_interval = 0.05
    pending_cfg: ClassVar[dict[str, Any]] = {"queue": "full"}
    unsupported: ClassVar[dict[str, str]] = {
        "requeue": "it needs a resume folder; test_batch_resilience.py has several nodes"
    }
    cannot_carry: ClassVar[dict[str, str]] = {"size: long": "a job definition has 24 KiB at most"}

    @pytest.fixture
    def scheduler(self, scheduler: AWSBatchScheduler) -> Any:
        return scheduler

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        return {**CFG, "execution_role_arn": EXECUTION_ROLE}

    @pytest.fixture
    def store_secret(self, use_double: AwsDouble) -> Callable[[str, str, str], object]:
        return use_double.secretsmanager.store

    def sh(self, script: str, name: str = "main", **fields: Any) -> Role:
        fields.setdefault("num_replicas", 2)
        return super().sh(script, name, **fields)

    def _why_not(self, value: HostileValue) -> str | None:
        return self.cannot_carry.get(value.name)  # the whole name, not a prefix of it

    def test_failure_and_its_code(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("exit 3"))
        status = self.finish(runner, handle)
        assert status.state == AppState.FAILED
        replicas = [r for role in status.roles for r in role.replicas]
        assert [r.exit_code for r in replicas] == [3, 3]

    def test_every_job_is_a_multi_node_job(
        self, runner: Runner, cfg: dict[str, Any], double: AwsDouble
    ) -> None:
        self.finish(runner, self.submit(runner, cfg, self.sh("exit 0")))
        (made,) = [call for call in double.calls if call.name == "RegisterJobDefinition"]
        assert made.params["type"] == "multinode"


def test_logs_contain_all_attempts_of_a_node(
    double: AwsDouble, scheduler: AWSBatchScheduler, ended: Ended
) -> None:
    double.batch.child_notice = 300.0
    script = "echo attempt $AWS_BATCH_JOB_ATTEMPT; [ $AWS_BATCH_JOB_ATTEMPT = 3 ]"
    app_id = scheduler.submit(app(sh(script, max_retries=4)), CFG)
    found = ended(app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 2)
    for k in range(2):
        lines = list(scheduler.log_iter(app_id, "worker", k))
        assert lines == [f"attempt {i}\n" for i in (1, 2, 3)]


class CountingLimit(RateLimit):
    """Counts the requests that wait for the limit."""

    count = 0

    def wait(self) -> None:
        self.count += 1
        super().wait()


def test_every_log_request_of_a_hundred_followers_waits_for_the_rate_limit(
    double: AwsDouble, scheduler: AWSBatchScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    # A busy machine may send many requests at once that were due one after the other, and a
    # throttled request is sent again. The rate itself is tested with a clock of its own.
    double.logs.quota = 10**6
    limit = CountingLimit(LOG_REQUESTS_PER_SECOND)
    scheduler._clients.log_requests = limit
    count = 100
    app_id = scheduler.submit(app(sh("echo $$; sleep 3", num_replicas=count)), CFG)
    logs = [scheduler.log_iter(app_id, "worker", k, should_tail=True) for k in range(count)]
    with ThreadPoolExecutor(count) as pool:
        lines = list(pool.map(list, logs))
    assert [len(found) for found in lines] == [1] * count
    assert "throttles" not in caplog.text
    # Each log takes at least one request; usually one while the node runs and one after its end.
    assert limit.count == double.counts["GetLogEvents"] >= count


def test_jobs_of_other_tools_are_not_listed(
    double: AwsDouble, scheduler: AWSBatchScheduler
) -> None:
    double.batch.fill(CFG["queue"], 2, definition_name=f"{DEFINITION_PREFIX}other", tags={})
    app_id = scheduler.submit(app(sh("true")), CFG)
    assert [item.app_id for item in scheduler.list()] == [app_id]


def test_list_sends_one_request_per_page_and_queues_concurrently(
    double: AwsDouble, scheduler: AWSBatchScheduler
) -> None:
    names = [f"many-{i}" for i in range(20)]
    for name in names:
        double.batch.add_queue(name)
        double.batch.fill(name, 1_000, definition_name=f"{DEFINITION_PREFIX}filled")
    double.faults.append(Fault("ListJobs", latency=0.02))
    found = scheduler.list()
    assert len(found) == 20_000
    assert len({item.app_handle for item in found}) == 20_000
    # Besides the 20 queues, the double has the two queues of the fixture.
    assert double.counts == {
        "DescribeJobQueues": 1,
        "ListJobs": 20 * 10 + 2,
        "DescribeJobs": 20 * 10,  # ListJobs returns no tags
    }
    assert 2 <= double.most_at_once <= 8


def test_list_keeps_at_most_one_page_per_queue_in_memory(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"many-{i}" for i in range(20)]
    options = [word for name in names for word in ("--queue", name)]
    # Run the double in another process, so that its memory is not measured.
    server = subprocess.Popen(
        [sys.executable, str(DOUBLE), "--fill", "1000", *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL", address[0])
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "double")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        scheduler = AWSBatchScheduler("test")
        scheduler.list({"queue": "many-0"})  # make the SDK load its models now
        tracemalloc.start()
        assert scheduler.list() == []  # 20,000 jobs of other tools
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        scheduler.close()
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()
    print(f"peak while listing 20 x 1,000 jobs: {peak / 1e6:.1f} MB")
    assert peak < 16e6
