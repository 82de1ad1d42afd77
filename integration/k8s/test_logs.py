"""Tests of the logs of ``kubernetes`` on the double: each line arrives once despite failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from k8s_apps import IMAGE, PYTHON, app, described, reason, running, shell
from k8s_double.handle import Double

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState, RetryPolicy
from torchx_specs.errors import RequestError
from torchx_specs.overlays import set_overlay
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.log_items import PartialLine

COUNT = 240
# The script prints in bursts for 2.5 seconds, so that many lines are from the same second. With a
# coarse clock, these lines have the same time.
SPEAK = (
    f"i=0; while [ $i -lt {COUNT} ]; do echo line $i; i=$((i+1));"
    " [ $((i % 10)) = 0 ] && sleep 0.1; done"
)
EXPECTED = [f"line {i}\n" for i in range(COUNT)]


class Follower(threading.Thread):
    """Follows a log in its own thread."""

    def __init__(self, lines: Iterator[str]) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self.error: BaseException | None = None
        self._source = lines

    def run(self) -> None:
        try:
            for line in self._source:
                self.lines.append(line)
        except BaseException as e:
            self.error = e

    def result(self, seconds: float = 120) -> list[str]:
        self.join(seconds)
        assert not self.is_alive(), f"it does not end; {len(self.lines)} lines"
        if self.error is not None:
            raise self.error
        return self.lines


def follow(scheduler: KubernetesScheduler, app_id: str, k: int = 0, **how: Any) -> Follower:
    lines = scheduler.log_iter(app_id, "main", k, should_tail=True, **how)
    follower = Follower(iter(lines))
    follower.start()
    return follower


@pytest.mark.parametrize("resolution", [1, 10**9], ids=["fine clock", "coarse clock"])
def test_a_follower_through_restarts_of_the_server(
    scheduler: KubernetesScheduler, double: Double, resolution: int
) -> None:
    double.log_resolution(resolution)
    app_id = scheduler.submit(app(SPEAK), {})
    follower = follow(scheduler, app_id)
    for at in (50, 120):
        wait_for(lambda at=at: len(follower.lines) >= at)
        double.restart(0.5)
    double_lines = follower.result()
    assert len(double_lines) == COUNT
    assert double_lines == EXPECTED
    assert list(scheduler.log_iter(app_id, "main")) == EXPECTED


def test_a_follower_through_cuts_and_faults(scheduler: KubernetesScheduler, double: Double) -> None:
    app_id = scheduler.submit(app(SPEAK), {})
    follower = follow(scheduler, app_id)
    for at, step in (
        (20, lambda: double.cut(True)),  # the log ends as if it were complete
        (60, lambda: double.cut(False)),
        (100, lambda: (double.fault(500, path="/log"), double.cut(False))),
        (140, lambda: (double.fault(503, path="/log", plain=True), double.cut(True))),
        (180, lambda: (double.fault(0, path="/log"), double.cut(False))),
        (220, lambda: double.cut(True)),
    ):
        wait_for(lambda at=at: len(follower.lines) >= at or not follower.is_alive())
        step()
    assert follower.result() == EXPECTED


def test_text_before_its_newline_on_a_node_with_cri_o(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path
) -> None:
    double.log_at_once()
    gate = tmp_path / "gate"
    script = (
        "echo first; printf 10%%; printf '\\r20%%';"
        f" until [ -e {gate} ]; do sleep 0.1; done; echo ' done'; echo last"
    )
    app_id = scheduler.submit(app(script), {})
    follower = follow(scheduler, app_id, partial=True)
    wait_for(lambda: "".join(follower.lines) == "first\n10%\r20%")
    assert isinstance(follower.lines[-1], PartialLine)
    double.cut(True)  # another request continues in the middle of the line
    gate.touch()
    items = follower.result()
    assert "".join(items) == "first\n10%\r20% done\nlast\n"
    assert next(item for item in items if not isinstance(item, PartialLine)) == "first\n"
    assert list(scheduler.log_iter(app_id, "main")) == ["first\n", "10%\r20% done\n", "last\n"]


def test_a_follower_reads_lines_with_unordered_times(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    """A node writes two streams into one log, and the times of one may be behind the other's."""
    double.log_skew(300_000_000)
    script = SPEAK.replace("echo line $i;", "echo line $i; echo err $i >&2;")
    app_id = scheduler.submit(app(script), {})
    follower = follow(scheduler, app_id)
    for at in range(60, 400, 60):
        wait_for(lambda at=at: len(follower.lines) >= at or not follower.is_alive())
        double.cut(True)
    lines = follower.result()
    assert [line for line in lines if line.startswith("line")] == EXPECTED
    assert [line for line in lines if line.startswith("err")] == [
        line.replace("line", "err") for line in EXPECTED
    ]
    assert len(lines) == 2 * COUNT


def test_many_followers_through_a_restart(scheduler: KubernetesScheduler, double: Double) -> None:
    count = 16
    script = "for i in 1 2 3 4 5 6 7 8 9 10; do echo $TORCHX_REPLICA_ID $i; sleep 0.15; done"
    app_id = scheduler.submit(app(shell(script, num_replicas=count)), {})
    followers = [follow(scheduler, app_id, k) for k in range(count)]
    wait_for(lambda: sum(len(follower.lines) for follower in followers) > count)
    double.restart(0.3)
    for k, follower in enumerate(followers):
        assert follower.result() == [f"{k} {i}\n" for i in range(1, 11)]


@pytest.mark.parametrize("style", ["token", "token-file", "exec"])
def test_a_follower_through_a_rotated_token(
    double: Double,
    scheduler: KubernetesScheduler,
    monkeypatch: pytest.MonkeyPatch,
    style: str,
) -> None:
    monkeypatch.setenv("KUBECONFIG", double.kubeconfig("other", style=style))
    app_id = scheduler.submit(app(SPEAK), {})
    follower = follow(scheduler, app_id)
    wait_for(lambda: len(follower.lines) >= 50)
    double.rotate("other", style=style)
    double.cut(False)
    assert follower.result() == EXPECTED
    assert described(scheduler, app_id).state == AppState.SUCCEEDED


def test_a_follower_waits_for_a_pod(scheduler: KubernetesScheduler, double: Double) -> None:
    double.play("unschedulable")
    app_id = scheduler.submit(app("echo end"), {})
    follower = follow(scheduler, app_id)
    time.sleep(1)
    assert follower.is_alive()
    double.stop_playing()
    double.play("slow", seconds=1)
    assert follower.result() == ["end\n"]


def test_a_follower_ends_if_the_pod_never_starts(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.play("image-pull-back-off")
    app_id = scheduler.submit(app("echo end"), {})
    follower = follow(scheduler, app_id)
    described(scheduler, app_id, lambda d: "ImagePull" in d.msg)
    assert follower.is_alive()
    scheduler.cancel(app_id)
    assert follower.result() == []


def test_all_attempts_are_in_the_log(scheduler: KubernetesScheduler) -> None:
    script = "echo begin; sleep 0.3; echo end; exit 1"
    role = shell(script, max_retries=2, retry_policy=RetryPolicy.REPLICA)
    app_id = scheduler.submit(app(role), {})
    follower = follow(scheduler, app_id)
    assert follower.result() == ["begin\n", "end\n"] * 3
    assert described(scheduler, app_id).state == AppState.FAILED
    assert list(scheduler.log_iter(app_id, "main")) == ["begin\n", "end\n"] * 3


def test_the_log_continues_after_a_preemption(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.play("preempted", count=1, lines=["from the first"], seconds=1.5)
    app_id = scheduler.submit(app("echo from the second"), {})
    assert follow(scheduler, app_id).result() == ["from the first\n", "from the second\n"]


def test_the_log_before_a_container_restart_is_read(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    """With Volcano, a container may restart without a new pod."""
    double.play_operator("jobs.batch.volcano.sh", pods=True)
    job = app("test -e once && { echo second; exit 0; }; touch once; echo first; exit 5")
    set_overlay(job.roles[0], "kubernetes", "V1Pod", {"spec": {"restartPolicy": "OnFailure"}})
    app_id = scheduler.submit(job, {"queue": "default"})
    found = described(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    assert found.roles_statuses[0].replicas[0].restarts == 1
    assert list(scheduler.log_iter(app_id, "main")) == ["first\n", "second\n"]


def test_one_stream_needs_a_cluster_that_splits_streams(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    app_id = scheduler.submit(app("echo out; echo err >&2"), {})
    described(scheduler, app_id)
    with pytest.raises(RequestError, match="stores stdout and stderr of a container in one log"):
        list(scheduler.log_iter(app_id, "main", streams=Stream.STDERR))
    double.split_streams()
    assert list(scheduler.log_iter(app_id, "main", streams=Stream.STDOUT)) == ["out\n"]
    assert list(scheduler.log_iter(app_id, "main", streams=Stream.STDERR)) == ["err\n"]


def test_unknown_roles_and_replicas_are_errors(scheduler: KubernetesScheduler) -> None:
    app_id = scheduler.submit(app(shell("exec sleep 60", num_replicas=2)), {})
    described(scheduler, app_id, running)
    with pytest.raises(RequestError, match="did you mean 'main'"):
        scheduler.log_iter(app_id, "mian")
    with pytest.raises(RequestError, match="has no replica 5; its replicas are 0 to 1"):
        scheduler.log_iter(app_id, "main", 5)


@pytest.mark.parametrize("job_api", ["batch", "jobset"])
def test_a_follower_reads_the_second_run_of_a_replica_that_had_succeeded(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path, job_api: str
) -> None:
    double.play_operator("jobsets.jobset.x-k8s.io", pods=True)
    failed, read = tmp_path / "failed", tmp_path / "read"
    roles = [
        shell("echo done", "reader"),
        shell(
            f"[ -e {failed} ] && exit 0; touch {failed};"
            f" while [ ! -e {read} ]; do sleep 0.1; done; exit 3",
            "trainer",
            max_retries=1,
        ),
    ]
    cfg = {"job_api": job_api, "retry_policy": "APPLICATION", "restarts_image": PYTHON}
    app_id = scheduler.submit(app(*roles), cfg)
    lines = iter(scheduler.log_iter(app_id, "reader", should_tail=True))
    assert next(lines) == "done\n"
    described(
        scheduler,
        app_id,
        lambda d: d.roles_statuses[0].replicas[0].state == AppState.SUCCEEDED,
    )
    read.touch()
    assert list(lines) == ["done\n"]
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)


@pytest.mark.parametrize("follows", [True, False], ids=["followed", "read"])
def test_an_injected_sidecar_is_not_taken_for_the_role(
    scheduler: KubernetesScheduler, double: Double, follows: bool
) -> None:
    """Istio with ``holdApplicationUntilProxyStarts`` inserts its container as the first one."""
    double.inject({"name": "proxy", "image": IMAGE, "command": ["sh", "-c", "echo proxy; sleep 1"]})
    app_id = scheduler.submit(app("echo role; exit 3"), {})
    if not follows:
        described(scheduler, app_id)
    assert list(scheduler.log_iter(app_id, "main", should_tail=follows)) == ["role\n"]
    found = described(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert reason(found) == "exit code 3"
