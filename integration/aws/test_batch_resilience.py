"""Attempts of apps on AWS Batch's double, whose containers are processes of this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_double import AwsDouble
from aws_moto import QUEUE
from resilience import AttemptCases, loop, reasons
from waiting import wait_for

from torchx_sched_aws.batch.attempts import LAST
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_specs import AppDef, AppState, Resource, Role, VolumeMount
from torchx_specs.schedulers import DescribeAppResponse, Scheduler

Ended = Callable[[str], DescribeAppResponse]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_double: AwsDouble) -> None:
    monkeypatch.chdir(tmp_path)
    use_double.batch.child_notice = 0.5


def volume() -> VolumeMount:
    """Return the mount of an EFS volume, in place of which the containers have this folder."""
    return VolumeMount("fs-12345678", str(Path.cwd()))


def options(**cfg: Any) -> dict[str, Any]:
    return {"queue": QUEUE, "resume_dir": str(Path.cwd() / "resume"), **cfg}


def submit(
    scheduler: AWSBatchScheduler, script: str, replicas: int = 1, retries: int = 0, **cfg: Any
) -> str:
    """Submit a script, which gets the index of its replica."""
    role = Role(
        *("main", "image"),
        entrypoint="sh",
        args=["-c", script, "sh", "${replica_id}"],
        num_replicas=replicas,
        max_retries=retries,
        resource=Resource(cpu=1, gpu=0, memMB=64),
        mounts=[volume()],
    )
    return scheduler.submit(AppDef("app", [role]), options(**cfg))


class TestAttempts(AttemptCases):
    """The cases that all batch systems share, with a multi-node job."""

    again = "node-failure"
    knows_steps = False
    knows_nodes = False

    @pytest.fixture(autouse=True)
    def _double(self, use_double: AwsDouble) -> None:
        self.double = use_double

    def submit(self, scheduler: Scheduler[Any], fault: str, retries: int = 0, **cfg: str) -> str:
        app = loop(Path.cwd(), fault, retries, python=sys.executable)
        app.roles[0].image, app.roles[0].mounts = "image", [volume()]
        return scheduler.submit(app, options(**cfg))

    def start_again(self, app_id: str) -> None:
        self.double.batch.reclaim(app_id.partition(":")[2])


@pytest.mark.parametrize(("code", "reason"), [(75, "requested"), (4, "requested"), (5, "failed")])
def test_end_of_any_node_ends_the_attempt(
    scheduler: AWSBatchScheduler, ended: Ended, code: int, reason: str
) -> None:
    script = f'[ "$TORCHX_ATTEMPT" = 1 ] || if [ $1 = 1 ]; then exit {code}; else sleep 86400; fi'
    app_id = submit(scheduler, script, 2, requeue_exit_codes=["4"])
    found = ended(app_id)
    if reason == "failed":
        assert (found.state, reasons(found)) == (AppState.FAILED, ["failed"])
    else:
        assert (found.state, reasons(found)) == (AppState.SUCCEEDED, [reason, "succeeded"])
    assert found.roles[0].num_replicas == 2
    assert found.roles[0].max_retries == 0


def test_program_that_stops_after_sigterm_was_preempted(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble
) -> None:
    script = (
        'echo "$TORCHX_ATTEMPT ${TORCHX_RESTART_REASON-none}"; [ "$TORCHX_ATTEMPT" = 0 ] || exit 0;'
        " trap 'exit 75' TERM; while :; do sleep 0.1; done"
    )
    app_id = submit(scheduler, script)
    assert next(iter(scheduler.log_iter(app_id, "main", should_tail=True))) == "0 none\n"
    use_double.batch.stop_container(app_id.partition(":")[2])
    found = ended(app_id)
    assert (found.state, reasons(found)) == (AppState.SUCCEEDED, ["preempted", "succeeded"])
    assert list(scheduler.log_iter(app_id, "main"))[-1] == "1 preempted\n"


@pytest.mark.parametrize(
    ("script", "cfg", "count", "line"),
    [
        ("true", {}, 3, "3 attempts in a row have committed no new step"),
        (
            'mkdir "$TORCHX_RESUME_DIR/step-$TORCHX_ATTEMPT"',
            {},
            10,
            "AWS Batch allows 10 attempts",
        ),
        ("sleep 1", {"max_total_time": "1s"}, 1, "its time is over (option max_total_time)"),
    ],
)
def test_budgets_end_the_app(
    scheduler: AWSBatchScheduler,
    ended: Ended,
    script: str,
    cfg: dict[str, str],
    count: int,
    line: str,
) -> None:
    app_id = submit(scheduler, f"{script}; exit 75", **cfg)
    found = ended(app_id)
    assert (found.state, found.msg) == (AppState.FAILED, LAST)
    assert len(found.attempts) == count
    assert found.num_restarts == count - 1
    assert list(scheduler.log_iter(app_id, "main"))[-1] == f"it does not start again: {line}\n"


def test_too_many_node_failures_end_the_app(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble
) -> None:
    app_id = submit(scheduler, "echo run; exec sleep 86400", max_node_failures=0)
    assert next(iter(scheduler.log_iter(app_id, "main", should_tail=True))) == "run\n"
    use_double.batch.reclaim(app_id.partition(":")[2])
    found = ended(app_id)
    assert (found.state, found.msg) == (AppState.FAILED, LAST)
    assert reasons(found) == ["node-failure", "node-failure"]
    line = "it does not start again: too many node failures (option max_node_failures)\n"
    assert list(scheduler.log_iter(app_id, "main"))[-1] == line


def test_app_between_two_attempts_is_pending(
    scheduler: AWSBatchScheduler, ended: Ended, use_double: AwsDouble
) -> None:
    queue = use_double.batch.add_queue("small", slots=1)
    script = '[ "$TORCHX_ATTEMPT" = 1 ] || { until [ -e ../go ]; do sleep 0.1; done; exit 75; }'
    app_id = submit(scheduler, script.replace("..", str(Path.cwd())), queue="small")
    running = wait_for(scheduler, app_id, AppState.RUNNING)
    assert (reasons(running), running.num_restarts) == ([None], 0)
    queue.slots = 0
    Path("go").touch()
    waiting = wait_for(scheduler, app_id, AppState.PENDING)
    assert (reasons(waiting), waiting.num_restarts) == (["requested"], 0)
    queue.slots = 1
    found = ended(app_id)
    assert (found.state, reasons(found)) == (AppState.SUCCEEDED, ["requested", "succeeded"])
    assert found.num_restarts == 1


@pytest.mark.parametrize("replicas", [1, 2])
def test_without_a_resume_folder_each_earlier_attempt_counts_as_a_failure(
    scheduler: AWSBatchScheduler, ended: Ended, replicas: int
) -> None:
    script = (
        'echo "$TORCHX_ATTEMPT ${TORCHX_RESTART_REASON-none} ${TORCHX_RESUME_DIR-none}";'
        ' [ "$TORCHX_ATTEMPT" = 0 ] && exit 75; exit 5'
    )
    app_id = submit(scheduler, script, replicas, 2, resume_dir=None, requeue=True)
    found = ended(app_id)
    assert (found.state, reasons(found)) == (AppState.FAILED, ["requested", "failed", "failed"])
    assert found.roles_statuses[0].replicas[0].exit_code == 5
    assert list(scheduler.log_iter(app_id, "main")) == [f"{k} none none\n" for k in range(3)]
