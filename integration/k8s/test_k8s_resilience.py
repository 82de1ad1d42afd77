"""Apps with the option ``requeue`` on the double of Kubernetes end as undisturbed apps do."""

from __future__ import annotations

from pathlib import Path

import pytest
from double_client import Client
from k8s_apps import PYTHON, app, shell
from k8s_double.handle import Double
from k8s_site import KUBECONFIG
from resilience import AttemptCases, at_fault, loop, reasons, resilient_loop
from waiting import described, wait_for

from patience import wait_for as wait_until
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState, BindMount, Role
from torchx_specs.overlays import set_overlay
from torchx_specs.schedulers import DescribeAppResponse
from torchx_specs.schedulers.logs import LogQuery

pytestmark = pytest.mark.skipif(bool(KUBECONFIG), reason="the pods share a folder with the test")

OPTIONS = {"restarts_image": PYTHON, "requeue": True}
# Ends with exit code 75 in the first attempt.
ONCE = "echo attempt $TORCHX_ATTEMPT $TORCHX_RESTART_REASON; [ $TORCHX_ATTEMPT = 1 ] || exit 75"


@pytest.fixture(autouse=True)
def _work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def mounted(role: Role) -> Role:
    """Mount the test's folder at the same path in the pods, which run on this machine."""
    role.mounts = [BindMount(str(Path.cwd()), str(Path.cwd()))]
    return role


def pod_of(double: Double, index: int) -> str:
    """Return the name of the last pod of a replica."""
    found = [one["metadata"] for one in double.objects("pods")]
    key = "batch.kubernetes.io/job-completion-index"
    own = [one for one in found if one["labels"].get(key) == str(index)]
    part = "torchx.pytorch.org/part"
    own = [one for one in own if one["labels"][part] == "replica"]
    return str(max(own, key=lambda one: one["creationTimestamp"])["name"])


def evict(double: Double, name: str) -> None:
    """Evict a pod through the eviction API, as ``kubectl drain`` does."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    path = f"/api/v1/namespaces/default/pods/{name}/eviction"
    assert Client(str(double.path)).raw("POST", path, body)[0] == 201


def has_begun(found: DescribeAppResponse) -> bool:
    """Return whether the supervisor has noted the start of the first attempt."""
    return bool(found.attempts and found.attempts[0].started)


class TestAttempts(AttemptCases):
    limit = "5s"

    @pytest.fixture(autouse=True)
    def _double(self, double: Double) -> None:
        self.double = double

    def submit(
        self, scheduler: KubernetesScheduler, fault: str, retries: int = 0, **cfg: str
    ) -> str:
        made = loop(Path.cwd(), fault, retries)
        for role in made.roles:
            role.image = PYTHON
            # the rank that is left waits for the other one during all of the grace period
            spec = {"spec": {"terminationGracePeriodSeconds": 5}}
            set_overlay(mounted(role), "kubernetes", "V1Pod", spec)
        return scheduler.submit(made, {**OPTIONS, "resume_dir": f"{Path.cwd()}/resume", **cfg})

    def start_again(self, app_id: str) -> None:
        evict(self.double, pod_of(self.double, 1))

    def test_node_failure_starts_the_next_attempt(self, scheduler: KubernetesScheduler) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        described(scheduler, app_id, has_begun)  # the supervisor watches the pods
        self.double.collect("default", pod_of(self.double, 1))
        Path("go").touch()
        self.check(scheduler, app_id, "node-failure")

    def test_drain_lets_the_ranks_agree_on_a_checkpoint(
        self, scheduler: KubernetesScheduler
    ) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        evict(self.double, pod_of(self.double, 1))
        Path("go").touch()
        self.check(scheduler, app_id, "preempted")

    def test_supervisor_that_is_evicted_too_continues(self, scheduler: KubernetesScheduler) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        pods = [one["metadata"] for one in self.double.objects("pods")]
        part = "torchx.pytorch.org/part"
        (own,) = [one["name"] for one in pods if one["labels"][part] == "supervisor"]
        evict(self.double, own)
        evict(self.double, pod_of(self.double, 1))
        Path("go").touch()
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        # the evicted replica may be deleted before the new supervisor sees it
        (reason, _) = reasons(found)
        assert reason in ("preempted", "requested")
        assert resilient_loop.check(Path.cwd(), 2) == ["none", reason]

    def test_preemption_by_kueue_starts_the_next_attempt(
        self, scheduler: KubernetesScheduler
    ) -> None:
        self.double.kueue()
        app_id = self.submit(scheduler, "outside", queue="team", job_api="batch")
        wait_until(lambda: self.double.admit() == 1)
        at_fault(Path.cwd())
        described(scheduler, app_id, has_begun)
        (workload,) = self.double.objects("workloads.kueue.x-k8s.io")
        conditions = [one for one in workload["status"]["conditions"] if one["type"] != "Admitted"]
        conditions.append({"type": "Evicted", "status": "True", "reason": "Preempted"})
        name = workload["metadata"]["name"]
        key = "workloads.kueue.x-k8s.io"
        self.double.set_status(key, "default", name, {"conditions": conditions})
        described(scheduler, app_id, lambda found: found.num_restarts)
        Path("go").touch()
        wait_until(lambda: self.double.admit() == 1)
        self.check(scheduler, app_id, "preempted")


def test_ended_pods_stay_with_their_logs_until_the_app_is_deleted(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app(shell(ONCE)), OPTIONS)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert (found.num_restarts, reasons(found)) == (1, ["requested", "succeeded"])
    text = list(scheduler.app_logs.read(app_id, "main", 0, LogQuery(attempts=True)))
    assert text == ["attempt 0\n", "--- attempt 2 ---\n", "attempt 1 requested\n"]
    scheduler.delete(app_id)
    wait_until(lambda: double.objects("pods") == [])


def test_failures_use_up_max_retries_and_requests_do_not(scheduler: KubernetesScheduler) -> None:
    line = "[ $TORCHX_ATTEMPT != 1 ] || exit 75; exit 7"
    app_id = scheduler.submit(app(shell(line, max_retries=1)), OPTIONS)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert reasons(found) == ["failed", "requested", "failed"]
    assert "exit code 7" in found.msg


def test_attempts_without_progress_end_the_app(scheduler: KubernetesScheduler) -> None:
    line = 'mkdir -p "$TORCHX_RESUME_DIR/step-8"; exit 75'
    cfg = {**OPTIONS, "resume_dir": f"{Path.cwd()}/runs/${{app_id}}"}
    app_id = scheduler.submit(app(mounted(shell(line))), cfg)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert reasons(found) == ["requested"] * 4
    assert found.attempts[-1].committed_step == 8
    assert "3 attempts in a row have committed no new step" in found.msg
    assert (Path("runs") / app_id.partition(":")[2] / "step-8").is_dir()


def test_node_failures_end_the_app(scheduler: KubernetesScheduler, double: Double) -> None:
    cfg = {**OPTIONS, "max_node_failures": 0}
    app_id = scheduler.submit(app(shell("exec sleep 1000", num_replicas=2)), cfg)
    described(scheduler, app_id, has_begun)
    double.collect("default", pod_of(double, 1))
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert reasons(found) == ["node-failure"]
    assert "too many node failures (option max_node_failures)" in found.msg


def test_whole_time_ends_the_app(scheduler: KubernetesScheduler) -> None:
    cfg = {**OPTIONS, "time": "4s", "max_total_time": "6s"}
    app_id = scheduler.submit(app(shell("exec sleep 1000")), cfg)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert set(reasons(found)) == {"time-limit"}
    assert len(found.attempts) > 1
    assert "its time is over (option max_total_time)" in found.msg


def test_app_between_two_attempts_has_not_ended(scheduler: KubernetesScheduler) -> None:
    app_id = scheduler.submit(app(shell(ONCE, num_replicas=2)), OPTIONS)
    states = set()

    def ended(found: DescribeAppResponse) -> bool:
        states.add(found.state)
        return found.state == AppState.SUCCEEDED

    described(scheduler, app_id, ended)
    assert states <= {AppState.SUBMITTED, AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED}


def test_failed_launcher_of_a_rank_that_asked_for_an_attempt(
    scheduler: KubernetesScheduler,
) -> None:
    """A launcher such as torchrun loses the exit code of the ranks."""
    line = (
        'own="$TORCHX_RESUME_DIR/attempts/$TORCHX_ATTEMPT.x"; mkdir -p "$own";'
        ' [ "$TORCHX_ATTEMPT" = 1 ] || { touch "$own/requeue"; exit 1; }'
    )
    cfg = {**OPTIONS, "resume_dir": f"{Path.cwd()}/resume"}
    app_id = scheduler.submit(app(mounted(shell(line))), cfg)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert reasons(found) == ["requested", "succeeded"]
