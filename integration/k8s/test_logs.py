"""Tests of the logs of ``kubernetes`` on the double: each line arrives once despite failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from k8s_apps import PYTHON, app, shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppState

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


def test_a_line_that_a_node_with_cri_o_stores_in_parts_arrives_once(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path
) -> None:
    double.log_at_once()
    gate = tmp_path / "gate"
    script = (
        "echo first; printf 10%%; printf '\\r20%%';"
        f" until [ -e {gate} ]; do sleep 0.1; done; echo ' done'; echo last"
    )
    app_id = scheduler.submit(app(script), {})
    follower = follow(scheduler, app_id)
    wait_for(lambda: follower.lines == ["first\n"])
    double.cut(True)  # another request continues in the middle of the line
    gate.touch()
    assert follower.result() == ["first\n", "10%\r20% done\n", "last\n"]
    assert list(scheduler.log_iter(app_id, "main")) == ["first\n", "10%\r20% done\n", "last\n"]


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


def test_the_log_continues_after_a_preemption(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.play("preempted", count=1, lines=["from the first"], seconds=1.5)
    app_id = scheduler.submit(app("echo from the second"), {})
    assert follow(scheduler, app_id).result() == ["from the first\n", "from the second\n"]


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
