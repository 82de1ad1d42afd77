"""Array jobs on the double of AWS Batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from aws_double import AwsDouble
from aws_moto import QUEUE

from patience import wait_for
from torchx_sched_aws.batch.scheduler import TAG_DELETED, AWSBatchScheduler
from torchx_specs import AppDef, AppState, Resource, Role, is_terminal, macros
from torchx_specs.schedulers import DescribeAppResponse


def submit(
    scheduler: AWSBatchScheduler,
    scripts: list[str],
    max_parallel: int | None = None,
    role: dict[str, Any] | None = None,
    **cfg: Any,
) -> Any:
    infos = []
    for number, script in enumerate(scripts):
        one = Role(
            "main",
            image="image",
            entrypoint="sh",
            args=["-c", script],
            env={"NUMBER": str(number), "SAME": "it's\n$x", "EMPTY": ""},
            resource=Resource(cpu=1, gpu=0, memMB=100),
            **(role or {}),
        )
        app = AppDef(f"sweep-{number}-0", [one])
        infos.append(scheduler.submit_dryrun(app, {"queue": QUEUE, **cfg}))
    return scheduler.app_arrays.submit(infos, max_parallel=max_parallel)


def ended(scheduler: AWSBatchScheduler, app_id: str) -> DescribeAppResponse:
    def described() -> DescribeAppResponse | None:
        found = scheduler.describe(app_id)
        assert found is not None
        return found if is_terminal(found.state) else None

    found = wait_for(described)
    assert found is not None
    return found


def states(scheduler: AWSBatchScheduler, app_ids: list[str]) -> list[AppState]:
    return [ended(scheduler, app_id).state for app_id in app_ids]


def test_one_request_submits_all_apps(scheduler: AWSBatchScheduler, double: AwsDouble) -> None:
    scripts = [f'echo $NUMBER "$SAME" {macros.app_id} $0; exit {i}' for i in range(3)]
    app_ids = list(submit(scheduler, scripts))
    assert len(double.batch._jobs) in (1, 4)  # the array job, with or without its children
    array = app_ids[0].removesuffix(".0")
    assert app_ids == [f"{array}.{i}" for i in range(3)]
    assert states(scheduler, app_ids) == [AppState.SUCCEEDED, AppState.FAILED, AppState.FAILED]
    for number, app_id in enumerate(app_ids):
        name = app_id.partition(":")[2]
        lines = list(scheduler.log_iter(app_id, "main"))
        assert lines == [f"{number} it's\n", f"$x {name} sh\n"]
    listed = {one.app_id: (one.name, one.exit_code) for one in scheduler.list()}
    assert listed == {app_id: (f"sweep-{i}-0", i) for i, app_id in enumerate(app_ids)}
    found = ended(scheduler, app_ids[2])
    assert found.roles_statuses[0].replicas[0].exit_code == 2
    [role] = found.roles
    assert (role.entrypoint, role.args[0], role.env["NUMBER"]) == ("sh", "-c", "2")
    assert (role.env["SAME"], role.env["EMPTY"]) == ("it's\n$x", "")
    assert ended(scheduler, array).state == AppState.FAILED


def test_arrays_are_split_by_the_size_of_the_definition(scheduler: AWSBatchScheduler) -> None:
    scripts = [f": {'x' * 4000}; exit 0"] * 8
    app_ids = list(submit(scheduler, scripts))
    assert Counter(Counter(one.rpartition(".")[0] for one in app_ids).values()) == {5: 1, 3: 1}
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}
    assert Counter(one.name for one in scheduler.list()) == Counter(
        f"sweep-{i}-0" for i in range(8)
    )


def test_an_app_that_is_left_alone_is_a_job_of_its_own(scheduler: AWSBatchScheduler) -> None:
    app_ids = list(submit(scheduler, [f": {'x' * 9000}"] * 3))
    assert ["." in app_id for app_id in app_ids] == [True, True, False]
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}


@pytest.mark.parametrize("how", ["option", "replicas"])
def test_other_apps_are_submitted_one_by_one(scheduler: AWSBatchScheduler, how: str) -> None:
    role = {"num_replicas": 2} if how == "replicas" else {}
    app_ids = list(submit(scheduler, ["true"] * 2, role=role, array=how != "option"))
    assert not any("." in app_id for app_id in app_ids)
    assert set(states(scheduler, app_ids)) == {AppState.SUCCEEDED}


def test_children_are_cancelled_and_deleted_alone(
    scheduler: AWSBatchScheduler, double: AwsDouble
) -> None:
    app_ids = list(submit(scheduler, ["sleep 86400", "sleep 86400", "true"]))
    scheduler.cancel(app_ids[0])
    assert ended(scheduler, app_ids[0]).state == AppState.CANCELLED
    assert ended(scheduler, app_ids[2]).state == AppState.SUCCEEDED
    scheduler.delete(app_ids[2])
    assert scheduler.describe(app_ids[2]) is None
    other = AWSBatchScheduler("other", log_delay=0.5)
    assert sorted(one.app_id for one in other.list()) == app_ids[:2]
    assert not other.exists(app_ids[2])
    running = scheduler.describe(app_ids[1])
    assert running is not None
    assert running.state in (AppState.PENDING, AppState.RUNNING)
    for app_id in app_ids[:2]:
        scheduler.delete(app_id)
    assert other.list() == []
    [array] = [job for job in double.batch._jobs.values() if job.size]
    assert TAG_DELETED in array.tags
    assert {d["status"] for revisions in double.batch._definitions.values() for d in revisions} == {
        "INACTIVE"
    }
    wait_for(lambda: array.status == "FAILED")
    other.close()


def test_a_whole_array_is_cancelled(scheduler: AWSBatchScheduler) -> None:
    app_ids = list(submit(scheduler, ["true", "sleep 86400", "sleep 86400"]))
    assert ended(scheduler, app_ids[0]).state == AppState.SUCCEEDED
    array = app_ids[0].removesuffix(".0")
    wait_for(lambda: scheduler.describe(array).state == AppState.RUNNING)  # type: ignore[union-attr]
    scheduler.cancel(array)
    assert states(scheduler, app_ids) == [
        AppState.SUCCEEDED,
        AppState.CANCELLED,
        AppState.CANCELLED,
    ]


def test_children_wait_in_a_full_queue(scheduler: AWSBatchScheduler) -> None:
    app_ids = list(submit(scheduler, ["true"] * 2, queue="full"))
    for app_id in app_ids:
        found = scheduler.describe(app_id)
        assert found is not None
        assert found.state == AppState.PENDING
        scheduler.delete(app_id)
    assert scheduler.describe(app_ids[0]) is None


def test_retries_and_the_timeout_hold_for_each_child(
    scheduler: AWSBatchScheduler, double: AwsDouble
) -> None:
    double.batch.timeout_scale = 0.02
    scripts = ["sleep 86400", "[ $AWS_BATCH_JOB_ATTEMPT = 2 ]"]
    app_ids = list(submit(scheduler, scripts, role={"max_retries": 1}, timeout=60))
    assert states(scheduler, app_ids) == [AppState.FAILED, AppState.SUCCEEDED]
    assert "timeout" in ended(scheduler, app_ids[0]).msg
    assert ended(scheduler, app_ids[1]).num_restarts == 1


def test_a_log_is_followed_from_before_the_child_exists(
    scheduler: AWSBatchScheduler, double: AwsDouble
) -> None:
    double.batch.pace = 0.5
    app_ids = list(submit(scheduler, ["echo one; echo two", "true"]))
    lines = list(scheduler.log_iter(app_ids[0], "main", should_tail=True))
    assert lines == ["one\n", "two\n"]


def test_a_child_is_cancelled_before_it_exists(
    scheduler: AWSBatchScheduler, double: AwsDouble
) -> None:
    double.batch.pace = 1.0
    app_ids = list(submit(scheduler, ["sleep 86400", "true"]))
    scheduler.cancel(app_ids[0])
    assert states(scheduler, app_ids) == [AppState.CANCELLED, AppState.SUCCEEDED]


CLIENT = f"""\
import sys
from torchx_sched_aws.batch.scheduler import AWSBatchScheduler
from torchx_specs import AppDef, Resource, Role
scheduler = AWSBatchScheduler("client")
infos = []
for i in range(10):
    role = Role("main", image="image", entrypoint="true", args=[str(i)],
                resource=Resource(cpu=1, gpu=0, memMB=100))
    infos.append(scheduler.submit_dryrun(AppDef(f"sweep-{{i}}-0", [role]), {{"queue": {QUEUE!r}}}))
for app_id in scheduler.app_arrays.submit(infos):
    print(app_id, flush=True)
    sys.stdin.read()
"""


def test_a_killed_client_leaves_an_array_that_lists_find(scheduler: AWSBatchScheduler) -> None:
    """The client is killed after it has printed the first id."""
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        client.send_signal(signal.SIGKILL)
    listed = scheduler.list()
    assert Counter(one.name for one in listed) == Counter(f"sweep-{i}-0" for i in range(10))
    assert set(states(scheduler, [one.app_id for one in listed])) == {AppState.SUCCEEDED}


def test_names_are_listed_before_the_children_exist(
    scheduler: AWSBatchScheduler, double: AwsDouble
) -> None:
    double.batch.pace = 3600
    app_ids = list(submit(scheduler, ["true"] * 2))
    assert [(one.app_id, one.name, one.state) for one in scheduler.list()] == [
        (app_ids[0], "sweep-0-0", AppState.PENDING),
        (app_ids[1], "sweep-1-0", AppState.PENDING),
    ]
