"""Tests of ``kubernetes`` on the double: status, cancel, delete, list, errors and manifests."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from k8s_apps import PYTHON, app, reason, running, shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState, Resource
from torchx_specs.errors import BackendError

# Tests of the status.


@pytest.mark.parametrize(
    ("sequence", "state", "words"),
    [
        ("image-pull-back-off", AppState.PENDING, "ImagePullBackOff: Back-off pulling image"),
        ("image-pull-error", AppState.PENDING, "ErrImagePull: rpc error"),
        ("invalid-image-name", AppState.PENDING, "InvalidImageName: Failed to apply default"),
        (
            "config-error",
            AppState.PENDING,
            'CreateContainerConfigError: secret "absent" not found',
        ),
        (
            "unschedulable",
            AppState.PENDING,
            "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        ),
        ("oom-killed", AppState.FAILED, "OOMKilled"),
        ("refused-by-node", AppState.FAILED, "UnexpectedAdmissionError: Pod was rejected"),
    ],
)
def test_status_shows_the_reason(
    scheduler: KubernetesScheduler, double: Double, sequence: str, state: AppState, words: str
) -> None:
    double.play(sequence)
    app_id = scheduler.submit(app("true"), {})
    found = described(scheduler, app_id, lambda d: d.state == state and words in reason(d))
    assert words in found.msg
    assert "\n" not in found.msg
    if sequence == "oom-killed":
        assert found.roles_statuses[0].replicas[0].exit_code == 137


@pytest.mark.parametrize(
    ("cfg", "role", "words"),
    [
        (
            {"node_selector": {"gpu": "h100"}},
            {},
            "Unschedulable: 0/1 nodes are available: 1 node(s) didn't match Pod's node",
        ),
        (
            {},
            {"resource": Resource(cpu=1, gpu=8, memMB=100)},
            "Unschedulable: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        ),
        ({}, {"image": "example.com/none:1"}, "ImagePullBackOff"),
        (
            {"env_secrets": {"TOKEN": "tokens/main"}},
            {},
            'CreateContainerConfigError: secret "tokens" not found',
        ),
    ],
)
def test_status_shows_the_reason_of_the_cluster(
    scheduler: KubernetesScheduler, cfg: dict[str, Any], role: dict[str, Any], words: str
) -> None:
    app_id = scheduler.submit(app(shell("true", **role)), cfg)
    found = described(scheduler, app_id, lambda d: words in reason(d))
    assert found.state == AppState.PENDING
    assert words in found.msg


@pytest.mark.parametrize("sequence", ["evicted", "preempted"])
def test_a_disruption_is_not_a_failure(
    scheduler: KubernetesScheduler, double: Double, sequence: str
) -> None:
    double.play(sequence, count=1)
    app_id = scheduler.submit(app("echo end"), {})
    assert described(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main"))[-1] == "end\n"


@pytest.mark.parametrize(
    ("sequence", "words"),
    [("evicted", "Evicted: The node was low on resource"), ("preempted", "Preempted: ")],
)
def test_status_names_a_disruption(
    scheduler: KubernetesScheduler, double: Double, sequence: str, words: str
) -> None:
    # without a restart policy, a Volcano Job fails with its pod, and the pod is not replaced
    double.play(sequence, stays=60)
    double.play_operator("jobs.batch.volcano.sh", pods=True)
    app_id = scheduler.submit(app("true"), {"queue": "default"})
    found = described(scheduler, app_id, lambda d: d.state == AppState.FAILED and reason(d))
    assert words in reason(found)
    assert found.roles_statuses[0].replicas[0].exit_code == 137


@pytest.mark.parametrize(
    ("sequence", "wanted"), [("unschedulable", "PENDING"), ("pretended", "RUNNING")]
)
def test_a_thousand_pods_in_three_requests(
    scheduler: KubernetesScheduler, double: Double, sequence: str, wanted: str
) -> None:
    double.play(sequence)
    app_id = scheduler.submit(app(shell("true", num_replicas=1000)), {})

    def seen(found: Any) -> bool:
        return [r.state.name for r in found.roles_statuses[0].replicas] == [wanted] * 1000

    wait_for(lambda: len(double.objects("pods")) == 1000)  # a replica without a pod is PENDING, too
    described(scheduler, app_id, seen)
    before = double.counted()
    code = (
        "import re, sys\n"
        "from torchx_sched_k8s.scheduler import create_scheduler\n"
        "found = create_scheduler('x').describe(sys.argv[1])\n"
        "print(found.state.name, len(found.roles_statuses[0].replicas))\n"
        # the result of getrusage would include the peak memory of the parent process
        "status = open('/proc/self/status').read()\n"
        "print(int(re.search(r'VmHWM:\\s+(\\d+) kB', status)[1]) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, app_id], capture_output=True, text=True, check=True
    )
    state, count, megabytes = done.stdout.split()
    assert (state, count) == (wanted, "1000")
    asked = [(r["method"], r["path"], r["code"]) for r in double.requests(before)]
    assert len(asked) <= 3, asked
    assert int(megabytes) < 100
    before = double.counted()
    command = [sys.executable, "-m", "torchx_cli", "status", f"kubernetes://torchx/{app_id}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"1000 replicas: 1000 {wanted}" in done.stdout
    assert len(done.stdout.splitlines()) < 15
    assert len(double.requests(before)) <= 3


# Tests of cancellation and deletion.


@pytest.mark.parametrize(
    "cfg",
    [
        {"job_api": "batch"},
        {"job_api": "volcano", "queue": "default"},
        {"job_api": "batch", "retry_policy": "APPLICATION"},
    ],
)
def test_a_cancelled_app_is_deleted_after_its_time_to_live(
    scheduler: KubernetesScheduler, double: Double, cfg: dict[str, Any]
) -> None:
    double.play_operator("jobs.batch.volcano.sh", pods=True)
    role = shell("exec sleep 86400", num_replicas=2)
    app_id = scheduler.submit(app(role), {**cfg, "ttl_seconds": 4, "restarts_image": PYTHON})
    described(scheduler, app_id, running)
    scheduler.cancel(app_id)
    found = scheduler.describe(app_id)
    assert found is not None
    assert found.state == AppState.CANCELLED
    assert [one.state for one in scheduler.list()] == [AppState.CANCELLED]
    wait_for(lambda: scheduler.describe(app_id) is None)
    wait_for(lambda: double.left() == [])


@pytest.mark.parametrize("cfg", [{"job_api": "jobset"}, {"job_api": "batch", "queue": "users"}])
def test_a_suspended_object_stays_and_a_warning_says_so(
    scheduler: KubernetesScheduler,
    double: Double,
    cfg: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    double.play_operator("jobsets.jobset.x-k8s.io", pods=True)
    double.kueue()
    app_id = scheduler.submit(app("exec sleep 86400"), {**cfg, "ttl_seconds": 1})
    scheduler.cancel(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    assert "it stays until you delete it" in caplog.text
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])


def test_cancel_of_a_queued_app_without_kueue(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.serve_operators([])
    app_id = scheduler.submit(app("exec sleep 86400"), {"job_api": "batch", "queue": "users"})
    scheduler.cancel(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    assert double.objects("jobs.batch")[0]["spec"]["suspend"] is True
    wait_for(lambda: double.objects("pods") == [])


# Tests of lists.


@pytest.mark.parametrize("how", ["absent", "forbidden"])
def test_missing_apis_are_skipped(scheduler: KubernetesScheduler, double: Double, how: str) -> None:
    if how == "absent":
        double.serve_operators([])
    else:
        for resource in ("jobsets", "jobs.batch.volcano.sh", "workloads"):
            double.deny("*", resource)
    app_id = scheduler.submit(app("exec sleep 86400"), {})
    described(scheduler, app_id, running)
    assert [a.app_id for a in scheduler.list()] == [app_id]
    assert scheduler.describe("default:none") is None
    scheduler.cancel(app_id)
    assert described(scheduler, app_id).state == AppState.CANCELLED
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])


# Tests of refusals.


def test_the_rights_in_the_readme_are_enough_and_needed(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    """The requests of all operations use exactly the rights in the README."""
    readme = Path(__file__).parents[2] / "packages" / "torchx-sched-k8s" / "README.md"
    role = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", readme.read_text(), re.S)[0])
    named = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    for which in ("jobs", "services"):  # after a lost response, the client reads the object
        double.fault(0, method="POST", path=f"/{which}[?](?!.*dryRun)", served=True)
    app_id = scheduler.submit(app("echo up; exec sleep 86400"), {})
    described(scheduler, app_id, running)
    scheduler.wait(app_id, 1)
    assert next(iter(scheduler.log_iter(app_id, "main", should_tail=True))) == "up\n"
    assert len(scheduler.list()) == 1
    with scheduler.app_sessions.open(app_id, "main", 0, ["true"]) as session:
        assert list(session.output()) == []
        assert session.wait() == 0
    with contextlib.suppress(BackendError):  # nothing listens at this port
        scheduler.app_sessions.connect(app_id, "main", 0, 1).close()
    scheduler.cancel(app_id)
    scheduler.delete(app_id)
    infos = [scheduler.submit_dryrun(app(f"exec sleep {60 + i}"), {}) for i in range(2)]
    first, second = scheduler.app_arrays.submit(infos)
    described(scheduler, first, running)
    scheduler.cancel(first)
    scheduler.delete(second)
    double.play("image-pull-error")
    app_id = scheduler.submit(app("true"), {"service_account": "nobody"})
    described(scheduler, app_id, lambda d: "FailedCreate" in d.msg)
    used = set()
    for request in double.requests():
        if request["path"] == "/version":
            continue  # every user may read it
        path = r"/api(?:s/([a-z0-9.-]+))?/\w+/namespaces/[a-z-]+/(.+)"
        group, rest = re.fullmatch(path, request["path"]).groups()  # type: ignore[union-attr]
        resource, _, name = rest.partition("/")
        _, slash, subresource = name.partition("/")
        resource += slash + subresource
        verb = request["method"].lower()
        if verb == "get" and not name:
            verb = "watch" if request["query"].get("watch") else "list"
        verb = {"post": "create"}.get(verb, verb)
        if group in (None, "batch"):
            used.add((group or "", resource, verb))
    # Some API servers ask for `create` when a WebSocket is opened, and others for `get`.
    used |= {(g, r, "create") for g, r, _ in used if r in ("pods/exec", "pods/portforward")}
    assert used == named


def test_list_needs_the_right_to_list_jobs(scheduler: KubernetesScheduler, double: Double) -> None:
    app_id = scheduler.submit(app("true"), {})
    double.deny("list", "jobs")
    with pytest.raises(BackendError, match="RBAC forbids double-user to list jobs"):
        scheduler.list()
    with pytest.raises(BackendError, match="RBAC forbids double-user to list jobs"):
        scheduler.describe(app_id)


def test_status_without_the_right_to_see_events(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.deny("*", "events")
    double.play("unscheduled")
    app_id = scheduler.submit(app("true"), {})
    found = described(scheduler, app_id, lambda d: d.state == AppState.PENDING)
    assert found.roles_statuses[0].replicas[0].state == AppState.PENDING


def test_missing_references_of_pods_are_shown(scheduler: KubernetesScheduler) -> None:
    for cfg, words in (
        ({"priority_class": "urgent"}, "no PriorityClass with name urgent was found"),
        ({"service_account": "nobody"}, 'serviceaccount "nobody" not found'),
    ):
        app_id = scheduler.submit(app("true"), cfg)
        found = described(scheduler, app_id, lambda d, words=words: words in d.msg)
        assert "FailedCreate" in found.msg
        assert found.state in (AppState.PENDING, AppState.SUBMITTED)


# Tests of a cluster that is busy.


# Tests of manifests.
