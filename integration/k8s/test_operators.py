"""Tests of JobSet, Volcano and AppWrappers on the double of Kubernetes.

The double stores the operators' objects. With ``pods=True`` it creates the objects' pods, and
restarts and ends them as the operators' documentation says. A test whose name contains
``request_shape`` checks only the objects that the client creates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from k8s_apps import app, running, shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_sched_mcad import scheduler as mcad_scheduler
from torchx_specs import AppState, RetryPolicy, macros
from torchx_specs.errors import RequestError
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.schedulers import Scheduler

VOLCANO = "jobs.batch.volcano.sh"
JOBSET = "jobsets.jobset.x-k8s.io"
MCAD = "appwrappers.workload.codeflare.dev"
KINDS = [(VOLCANO, {"queue": "default"}), (JOBSET, {"job_api": "jobset"}), (MCAD, {})]


@pytest.fixture
def of(double: Double) -> Iterator[Callable[[str], Scheduler[Any]]]:
    """Return a function that creates the scheduler for a kind of object."""
    made: list[Scheduler[Any]] = []

    def get(kind: str) -> Scheduler[Any]:
        create = mcad_scheduler.create_scheduler if kind == MCAD else create_scheduler
        made.append(create("test"))
        return made[-1]

    yield get
    for scheduler in made:
        scheduler.close()


@pytest.mark.parametrize(
    ("kind", "sequence", "state"),
    [
        (VOLCANO, "pending", AppState.PENDING),
        (VOLCANO, "running", AppState.RUNNING),
        (VOLCANO, "completed", AppState.SUCCEEDED),
        (VOLCANO, "failed", AppState.FAILED),
        (VOLCANO, "terminated", AppState.FAILED),
        (VOLCANO, "aborted", AppState.CANCELLED),
        (VOLCANO, "a-phase-of-tomorrow", AppState.UNKNOWN),
        (JOBSET, "running", AppState.PENDING),  # the Jobs are active, but no pod is ready
        (JOBSET, "completed", AppState.SUCCEEDED),
        (JOBSET, "failed", AppState.FAILED),
        (MCAD, "pending", AppState.PENDING),
        (MCAD, "running", AppState.RUNNING),
        (MCAD, "completed", AppState.SUCCEEDED),
        (MCAD, "failed", AppState.FAILED),
        (MCAD, "deleted", AppState.CANCELLED),
    ],
)
def test_states_of_operators_objects(
    of: Callable[[str], Scheduler[Any]],
    double: Double,
    kind: str,
    sequence: str,
    state: AppState,
) -> None:
    scheduler = of(kind)
    double.play_operator(kind, sequence)
    app_id = scheduler.submit(app("true"), dict(KINDS)[kind])
    found = described(scheduler, app_id, lambda d: d.state == state)
    assert [r.role for r in found.roles_statuses] == ["main"]
    assert {a.app_id: a.state for a in scheduler.list()} == {app_id: state}


@pytest.mark.parametrize(("kind", "cfg"), KINDS)
def test_an_app_from_submission_to_its_logs(
    of: Callable[[str], Scheduler[Any]],
    double: Double,
    kind: str,
    cfg: dict[str, Any],
) -> None:
    scheduler = of(kind)
    double.play_operator(kind, pods=True)
    value = "it's $(HOME) $$ `x`"
    roles = [
        shell(f'echo one {macros.replica_id} "$V"', "one", num_replicas=2, env={"V": value}),
        shell("echo two", "two"),
    ]
    app_id = scheduler.submit(app(*roles), cfg)
    found = described(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert [(r.name, r.num_replicas) for r in found.roles] == [("one", 2), ("two", 1)]
    states = {(s.role, r.id): r.state for s in found.roles_statuses for r in s.replicas}
    assert states == dict.fromkeys([("one", 0), ("one", 1), ("two", 0)], AppState.SUCCEEDED)
    for k in range(2):
        assert list(scheduler.log_iter(app_id, "one", k)) == [f"one {k} {value}\n"]
    assert list(scheduler.log_iter(app_id, "two", should_tail=True)) == ["two\n"]
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])
    assert scheduler.describe(app_id) is None
    assert double.warnings() == []


@pytest.mark.parametrize(("kind", "cfg"), KINDS)
def test_a_failure_shows_its_exit_code(
    of: Callable[[str], Scheduler[Any]], double: Double, kind: str, cfg: dict[str, Any]
) -> None:
    scheduler = of(kind)
    double.play_operator(kind, pods=True)
    app_id = scheduler.submit(app("echo bad; exit 9"), cfg)
    found = described(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert found.roles_statuses[0].replicas[0].exit_code == 9
    assert "exit code 9" in found.msg
    assert list(scheduler.log_iter(app_id, "main")) == ["bad\n"]


@pytest.mark.parametrize(("kind", "cfg"), KINDS[:2])
def test_cancel_of_a_failed_app_keeps_its_state(
    scheduler: KubernetesScheduler, double: Double, kind: str, cfg: dict[str, Any]
) -> None:
    double.play_operator(kind, pods=True)
    app_id = scheduler.submit(app("exit 9"), cfg)
    assert described(scheduler, app_id).state == AppState.FAILED
    scheduler.cancel(app_id)
    assert described(scheduler, app_id).state == AppState.FAILED


@pytest.mark.parametrize(("kind", "cfg"), KINDS[:2])
def test_cancel_ends_the_pods_and_keeps_the_object(
    scheduler: KubernetesScheduler, double: Double, kind: str, cfg: dict[str, Any]
) -> None:
    double.play_operator(kind, pods=True)
    app_id = scheduler.submit(app(shell("exec sleep 86400", num_replicas=2)), cfg)
    described(scheduler, app_id, running)
    scheduler.cancel(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    wait_for(lambda: double.objects("pods") == [])
    assert len(double.objects(kind)) == 1
    assert described(scheduler, app_id).state == AppState.CANCELLED


def test_cancel_of_an_appwrapper_removes_it(
    of: Callable[[str], Scheduler[Any]], double: Double
) -> None:
    scheduler = of(MCAD)
    double.play_operator(MCAD, pods=True)
    app_id = scheduler.submit(app("exec sleep 86400"), {})
    described(scheduler, app_id, running)
    scheduler.cancel(app_id)
    wait_for(lambda: double.left() == [])


@pytest.mark.parametrize(("kind", "cfg"), KINDS[:2])
@pytest.mark.parametrize("policy", [RetryPolicy.APPLICATION, RetryPolicy.ROLE])
def test_an_app_makes_as_many_attempts_as_its_retries_allow(
    scheduler: KubernetesScheduler,
    double: Double,
    tmp_path: Path,
    kind: str,
    cfg: dict[str, Any],
    policy: RetryPolicy,
) -> None:
    double.play_operator(kind, pods=True)
    # the first replica counts the attempts in a file; the second replica runs until it is ended
    script = (
        f"[ {macros.replica_id} = 1 ] && exec sleep 86400;"
        f" echo attempt >> {tmp_path}/attempts; exit 3"
    )
    role = shell(script, max_retries=2, retry_policy=policy, num_replicas=2)
    app_id = scheduler.submit(app(role), cfg)
    found = described(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert (tmp_path / "attempts").read_text().count("attempt") == 3
    assert found.num_restarts == 2
    # the last failed pod is kept; the pod that still ran is deleted
    assert found.roles_statuses[0].replicas[0].exit_code == 3
    assert "main/0: exit code 3" in found.msg


def test_pods_that_volcano_deleted_are_named(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.play_operator(VOLCANO, pods=True)
    script = f"[ {macros.replica_id} = 1 ] || exec sleep 86400; exit 3"
    role = shell(script, num_replicas=2, max_retries=1, retry_policy=RetryPolicy.REPLICA)
    app_id = scheduler.submit(app(role), {"queue": "default"})
    described(scheduler, app_id)
    wait_for(lambda: double.objects("pods") == [])
    found = described(scheduler, app_id)
    running_one, failed_one = found.roles_statuses[0].replicas
    why = "deleted: Volcano's RestartPod keeps no pod, so exit code and log are lost"
    assert (failed_one.reason, failed_one.exit_code) == (why, None)
    assert running_one.reason == why
    assert why in found.msg


@pytest.mark.parametrize("retries", [0, 1])
def test_a_disruption_restarts_a_jobset_and_is_no_retry(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path, retries: int
) -> None:
    double.play_operator(JOBSET, pods=True)
    index = {"batch.kubernetes.io/job-completion-index": "1"}
    double.play("preempted", labels=index, count=2)
    started = f"echo started >> {tmp_path}/{macros.replica_id}"
    # the first replica runs until the second replica was preempted twice
    script = f"{started}; while [ $(wc -l < {tmp_path}/0) -lt 3 ]; do sleep 0.05; done"
    role = shell(script, num_replicas=2, max_retries=retries)
    app_id = scheduler.submit(app(role), {"job_api": "jobset"})
    found = described(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED, found
    assert (tmp_path / "0").read_text().count("started") == 3
    status = double.objects(JOBSET)[0]["status"]
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (2, 0)


@pytest.mark.parametrize(("kind", "cfg"), KINDS[:2])
def test_success_of_a_client_ends_the_app(
    of: Callable[[str], Scheduler[Any]], double: Double, kind: str, cfg: dict[str, str]
) -> None:
    scheduler = of(kind)
    double.play_operator(kind, pods=True)
    server = replace(shell("sleep 86400", num_replicas=2), name="server")
    client = replace(shell("true"), name="client", metadata={ENDS_APP_KEY: True})
    found = described(scheduler, scheduler.submit(app(server, client), cfg))
    assert found.state == AppState.SUCCEEDED
    states = {role.role: {r.state for r in role.replicas} for role in found.roles_statuses}
    assert states == {"server": {AppState.SUCCEEDED}, "client": {AppState.SUCCEEDED}}


@pytest.mark.parametrize(
    ("kind", "cfg", "problem"),
    [
        (VOLCANO, {"queue": "default"}, "Volcano ends the Job when the first of them"),
        ("jobs", {}, "plain Jobs cannot end the other roles"),
        (MCAD, {}, "an AppWrapper ends with the last of its pods"),
    ],
)
def test_a_success_that_the_api_cannot_use_is_refused(
    of: Callable[[str], Scheduler[Any]], kind: str, cfg: dict[str, str], problem: str
) -> None:
    roles = [replace(shell("true"), name=n, metadata={ENDS_APP_KEY: True}) for n in "ab"]
    with pytest.raises(RequestError, match=problem):
        of(kind).submit(app(*roles, shell("true")), cfg)


def test_request_shape_of_an_appwrapper_with_pod_groups(
    of: Callable[[str], Scheduler[Any]], double: Double
) -> None:
    scheduler = of(MCAD)
    double.play_operator(MCAD, pods=True)
    cfg = {"coscheduler_name": "scheduler-plugins", "priority": 7, "image_secret": "pull"}
    app_id = scheduler.submit(app(shell("true", num_replicas=2)), cfg)
    assert described(scheduler, app_id).state == AppState.SUCCEEDED
    assert double.objects(MCAD)[0]["spec"]["priority"] == 7
    groups = double.objects("podgroups.scheduling.sigs.k8s.io")
    assert [group["spec"]["minMember"] for group in groups] == [2]


def test_invalid_operator_objects_are_refused(double: Double) -> None:
    """The double's schemas refuse the same objects as the operators' schemas."""
    from double_client import Client

    client = Client(str(double.path))
    body: dict[str, Any] = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "one"},
        "spec": {"tasks": [{"name": "a", "replicas": "3", "template": {"spec": {}}}]},
    }
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
    code, answer, _ = client.raw("POST", path, body)
    assert code == 422
    assert "spec.tasks[0].replicas in body must be of type integer" in answer["message"]
    body["spec"]["tasks"][0].update(replicas=3, policies=[{"event": "PodFailed", "action": "Run"}])
    code, answer, _ = client.raw("POST", path, body)
    assert code == 422
    assert 'spec.tasks[0].policies[0].action: Unsupported value: "Run"' in answer["message"]
