"""Tests of the status of apps that lose pods, on the double of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest
from double_client import Client
from k8s_apps import PYTHON, app, running, shell
from k8s_double.handle import Double
from k8s_double.store import now
from waiting import described

from patience import wait_for
from torchx_sched_k8s.cluster.labels import selector
from torchx_sched_k8s.scheduler import BACKENDS, KubernetesScheduler
from torchx_sched_k8s.status.describe import describe
from torchx_sched_k8s.status.pod_states import list_pods
from torchx_specs import AppState, RetryPolicy, macros
from torchx_specs.overlays import set_overlay
from torchx_specs.schedulers import DescribeAppResponse

SLEEP = "exec sleep 86400"


def name_of_pod(double: Double, text: str) -> str:
    """Return the name of the pod whose name contains a text."""
    (name,) = [n for p in double.objects("pods") if text in (n := p["metadata"]["name"])]
    return str(name)


def evict(double: Double, name: str) -> None:
    """Evict a pod through the eviction API, as ``kubectl drain`` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    assert Client(str(double.path)).raw("POST", path, body)[0] == 201


def reasons(found: DescribeAppResponse) -> list[str]:
    """Return the reasons of the first role's replicas."""
    return [str(replica.reason or "") for replica in found.roles_statuses[0].replicas]


def test_a_drained_replica_is_counted_and_named(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    role = shell("trap 'sleep 3; exit 1' TERM; sleep 86400 & wait", num_replicas=2)
    app_id = scheduler.submit(app(role), {})
    described(scheduler, app_id, running)
    name = name_of_pod(double, "-main-1-")
    evict(double, name)
    states = set()

    def replaced(found: DescribeAppResponse) -> bool:
        states.add(found.state)
        return running(found) and "replaced" in found.msg

    found = described(scheduler, app_id, replaced)
    assert found.num_restarts == 1
    assert reasons(found)[1].startswith(f"evicted: pod {name} was removed")
    assert found.msg == f"main/1: {reasons(found)[1]}"
    assert found.roles_statuses[0].replicas[0].restarts == 0
    assert states <= {AppState.RUNNING, AppState.PENDING}


def test_status_while_a_drained_pod_is_replaced(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app(SLEEP), {})
    described(scheduler, app_id, running)
    # a quota refuses the new pod
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    double.create("resourcequotas", "default", {**body, "spec": {"hard": {"pods": "0"}}})
    evict(double, name_of_pod(double, "-main-0-"))
    found = described(scheduler, app_id, lambda d: "exceeded quota" in d.msg)
    assert found.state == AppState.PENDING
    assert found.num_restarts == 1
    assert scheduler.list()[0].state == AppState.PENDING


@pytest.mark.parametrize(
    ("sequence", "words"), [("evicted", "evicted: The node was low"), ("preempted", "preempted: ")]
)
def test_a_disruption_is_shown_after_the_pod_was_replaced(
    scheduler: KubernetesScheduler, double: Double, sequence: str, words: str
) -> None:
    double.play(sequence, count=1, seconds=3)
    app_id = scheduler.submit(app(SLEEP), {})
    found = described(scheduler, app_id, lambda d: running(d) and "replaced" in d.msg)
    assert reasons(found)[0].startswith(words)
    assert reasons(found)[0].endswith(", replaced")
    assert (found.state, found.num_restarts) == (AppState.RUNNING, 1)


@pytest.mark.parametrize("end", [AppState.FAILED, AppState.CANCELLED])
def test_restarts_are_known_after_an_end_that_deletes_the_pods(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path, end: AppState
) -> None:
    # A pod that another one replaces within two seconds after the start is not looked for.
    wait = f"while [ {macros.replica_id} = 0 -o ! -e {tmp_path}/fail ]; do sleep 0.05; done"
    script = f"trap 'sleep 3; exit 1' TERM; {wait}; exit 3"
    app_id = scheduler.submit(app(shell(script, num_replicas=2)), {})
    described(scheduler, app_id, running)
    evict(double, name_of_pod(double, "-main-0-"))
    described(scheduler, app_id, lambda d: running(d) and d.num_restarts == 1)
    if end == AppState.FAILED:
        (tmp_path / "fail").touch()
    else:
        scheduler.cancel(app_id)
    described(scheduler, app_id)
    wait_for(lambda: not [p for p in double.objects("pods") if "-main-0-" in p["metadata"]["name"]])
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (end, 1)
    assert found.roles_statuses[0].replicas[0].restarts == 1


def test_one_replica_runs_and_a_quota_refuses_the_other(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"}}
    double.create("resourcequotas", "default", {**body, "spec": {"hard": {"pods": "1"}}})
    app_id = scheduler.submit(app(shell(SLEEP, num_replicas=2)), {})
    found = described(
        scheduler, app_id, lambda d: d.state == AppState.RUNNING and "exceeded quota" in d.msg
    )
    assert "exceeded quota: one" in reasons(found)[1]
    assert found.msg == f"main/1: {reasons(found)[1]}"
    assert found.num_restarts == 0


@pytest.mark.parametrize("job_api", ["batch", "jobset"])
def test_a_deleted_pod_is_the_reason_of_the_failure(
    scheduler: KubernetesScheduler, double: Double, job_api: str
) -> None:
    double.play_operator("jobsets.jobset.x-k8s.io", pods=True)
    app_id = scheduler.submit(app(shell(SLEEP, num_replicas=3)), {"job_api": job_api})
    described(scheduler, app_id, running)
    name = name_of_pod(double, "-1-")
    path = f"/api/v1/namespaces/default/pods/{name}"
    assert Client(str(double.path)).raw("DELETE", path, {})[0] == 200
    found = described(
        scheduler, app_id, lambda d: d.state == AppState.FAILED and "deleted" in reasons(d)[1]
    )
    deleted = f"deleted: pod {name} was deleted by somebody, not by its Job"
    because = f"ended because replica 1 was {deleted}"
    wait_for(lambda: reasons(scheduler.describe(app_id)) == [because, deleted, because])  # type: ignore[arg-type]
    found = described(scheduler, app_id)
    assert f"main/1: {deleted}" in found.msg or because in found.msg


def test_a_deleted_pod_that_is_replaced_is_named(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    # The process outlives SIGTERM: the API's times have seconds only, so a pod that ends in the
    # second of its start cannot be told from its replacement.
    script = f"trap '' TERM; {SLEEP}"
    role = shell(script, num_replicas=2, max_retries=3, retry_policy=RetryPolicy.REPLICA)
    set_overlay(role, "kubernetes", "V1Pod", {"spec": {"terminationGracePeriodSeconds": 3}})
    app_id = scheduler.submit(app(role), {})
    described(scheduler, app_id, running)
    name = name_of_pod(double, "-main-0-")
    path = f"/api/v1/namespaces/default/pods/{name}"
    assert Client(str(double.path)).raw("DELETE", path, {})[0] == 200
    found = described(scheduler, app_id, lambda d: "deleted: " in d.msg)
    assert found.num_restarts == 1
    assert reasons(found)[0].startswith(f"deleted: pod {name} was deleted by somebody")


def _began_to_run(double: Double) -> str:
    """Return the time at which the Volcano Job began to run; empty before."""
    [job] = double.objects("jobs.batch.volcano.sh")
    conditions = (job.get("status") or {}).get("conditions") or ()
    return next((str(c["lastTransitionTime"]) for c in conditions if c["status"] == "Running"), "")


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_deleted_pod_of_volcano_is_named(
    scheduler: KubernetesScheduler, double: Double, replicas: int
) -> None:
    double.play_operator("jobs.batch.volcano.sh", "running", pods=True)
    app_id = scheduler.submit(app(shell(SLEEP, num_replicas=replicas)), {"queue": "default"})
    described(scheduler, app_id, running)
    before = double.objects("pods")[-1]["metadata"]
    # The API's times have seconds only. The new pod is recognized by its time, which must differ
    # from the time at which the job began to run: that is after its pods did.
    began = wait_for(lambda: _began_to_run(double))
    wait_for(lambda: now() > began)
    path = f"/api/v1/namespaces/default/pods/{before['name']}"
    assert Client(str(double.path)).raw("DELETE", path, {})[0] == 200
    found = described(scheduler, app_id, lambda d: running(d) and "deleted: " in d.msg)
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in double.objects("pods")}
    assert pods[before["name"]] != before["uid"]
    assert len(pods) == replicas
    told = f"deleted: pod {before['name']} was deleted or evicted, not by its Job, replaced"
    assert [text for text in reasons(found) if text] == [told]
    assert (found.state, found.num_restarts) == (AppState.RUNNING, 1)


def test_a_node_that_does_not_answer_is_named(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app(SLEEP), {})
    described(scheduler, app_id, running)
    double.lose_node()
    found = described(scheduler, app_id, lambda d: "not ready" in d.msg)
    assert found.state == AppState.RUNNING
    assert found.msg == "main/0: node double-node is not ready: it no longer answers the cluster"


def test_an_app_whose_pods_have_ended_is_running_until_its_job_completes(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path
) -> None:
    app_id = scheduler.submit(app(f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"), {})
    described(scheduler, app_id, running)
    double.pause_jobs()
    (tmp_path / "go").touch()
    found = described(
        scheduler,
        app_id,
        lambda d: [r.state for r in d.roles_statuses[0].replicas] == [AppState.SUCCEEDED],
    )
    assert found.state == AppState.RUNNING
    double.pause_jobs(False)
    assert described(scheduler, app_id).state == AppState.SUCCEEDED


def test_a_gang_that_waits_in_volcano_shows_why(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    why = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"
    double.play_operator("jobs.batch.volcano.sh", "pending", gang=why)
    app_id = scheduler.submit(app(shell(SLEEP, num_replicas=2)), {"queue": "default"})
    found = described(scheduler, app_id, lambda d: why in d.msg)
    meaning = "the cluster has no room for all replicas at once"
    assert found.state == AppState.PENDING
    assert found.msg.startswith(f"Unschedulable: {why}: {meaning}; ")


def test_a_full_queue_of_volcano_is_named(scheduler: KubernetesScheduler, double: Double) -> None:
    """Volcano reports a full queue in a normal event, in addition to the warning of the gang."""
    why = "0/0 tasks in gang unschedulable: pod group is not ready, 2 minAvailable"
    full = "queue resource quota insufficient: insufficient cpu"
    double.play_operator("jobs.batch.volcano.sh", "pending", gang=why, full=full)
    app_id = scheduler.submit(app(shell(SLEEP, num_replicas=2)), {"queue": "default"})
    found = described(scheduler, app_id, lambda d: "queue" in d.msg)
    meaning = "the quota of the namespace or queue is used up"
    assert found.state == AppState.PENDING
    assert found.msg.startswith(f"Unschedulable: {full}; {why}: {meaning}; ")


@pytest.mark.parametrize("job_api", ["batch", "jobset"])
def test_pods_of_an_earlier_attempt_are_not_lost(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path, job_api: str
) -> None:
    double.play_operator("jobsets.jobset.x-k8s.io", pods=True)
    failed = tmp_path / "failed"
    roles = [
        shell(SLEEP, "reader"),
        shell(f"[ -e {failed} ] && {SLEEP}; touch {failed}; sleep 1; exit 3", "b", max_retries=1),
    ]
    cfg = {"job_api": job_api, "retry_policy": "APPLICATION", "restarts_image": PYTHON}
    app_id = scheduler.submit(app(*roles), cfg)
    seen: set[str] = set()

    def ran_again(found: DescribeAppResponse) -> bool:
        seen.update(reasons(found))
        return found.num_restarts == 1 and running(found)

    found = described(scheduler, app_id, ran_again)
    assert found.roles_statuses[0].replicas[0].restarts == 0
    assert [text for text in seen if "evicted" in text or "deleted" in text] == []


def lost_text(found: DescribeAppResponse) -> list[str]:
    """Return the reasons that name a lost pod."""
    return [text for text in reasons(found) if "evicted" in text or "deleted" in text]


@pytest.mark.parametrize("job_api", ["batch", "jobset"])
def test_pods_that_appear_while_the_status_is_read_are_not_lost(
    scheduler: KubernetesScheduler, double: Double, job_api: str
) -> None:
    """The pods were listed before the Job created them, and its events afterwards."""
    double.play_operator("jobsets.jobset.x-k8s.io", pods=True)
    app_id = scheduler.submit(app(shell(SLEEP, num_replicas=6)), {"job_api": job_api})
    described(scheduler, app_id, running)
    namespace, _, name = app_id.partition(":")
    cluster = scheduler._cluster_of(None)
    view = BACKENDS[job_api].find(cluster, namespace, name)
    assert view is not None
    assert lost_text(describe(cluster, namespace, name, view, [])) == []
    pods = list_pods(cluster, namespace, selector(instance=name), "list the pods")
    assert lost_text(describe(cluster, namespace, name, view, pods[1:])) == []


@pytest.mark.parametrize("job_api", ["batch", "jobset"])
def test_pods_that_vanish_with_their_job_while_the_status_is_read_are_not_lost(
    scheduler: KubernetesScheduler, double: Double, job_api: str
) -> None:
    double.play_operator("jobsets.jobset.x-k8s.io", pods=True)
    app_id = scheduler.submit(app(SLEEP), {"job_api": job_api})
    described(scheduler, app_id, running)
    namespace, _, name = app_id.partition(":")
    cluster = scheduler._cluster_of(None)
    view = BACKENDS[job_api].find(cluster, namespace, name)
    assert view is not None
    (job,) = double.objects("jobs.batch")
    path = f"/apis/batch/v1/namespaces/default/jobs/{job['metadata']['name']}"
    policy = {"propagationPolicy": "Background"}
    assert Client(str(double.path)).raw("DELETE", path, policy)[0] == 200
    uid = job["metadata"]["uid"]
    wait_for(
        lambda: all(
            owner["uid"] != uid
            for pod in double.objects("pods")
            for owner in pod["metadata"].get("ownerReferences") or ()
        )
    )
    assert lost_text(describe(cluster, namespace, name, view, [])) == []


def test_a_supervised_app_restarts_after_a_disruption(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    cfg = {"retry_policy": "APPLICATION", "restarts_image": PYTHON}
    app_id = scheduler.submit(app(shell(SLEEP, "a"), shell(SLEEP, "b", num_replicas=2)), cfg)
    described(scheduler, app_id, running)
    before = {pod["metadata"]["uid"] for pod in double.objects("pods")}
    evict(double, name_of_pod(double, "-b-1-"))
    found = described(scheduler, app_id, lambda d: d.num_restarts == 1 and running(d))
    assert found.state == AppState.RUNNING
    replicas = [
        pod["metadata"]
        for pod in double.objects("pods")
        if pod["metadata"]["labels"].get("torchx.pytorch.org/part") == "replica"
    ]
    # both roles run again, although the app has no retries
    assert len(replicas) == 3
    assert not before & {one["uid"] for one in replicas}
