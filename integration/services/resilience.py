"""Tests of attempts that batch systems share: disturbed runs end as the undisturbed run does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import resilient_loop
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse, Scheduler

WORLD = 2


def loop(
    folder: Path,
    fault: str,
    retries: int = 0,
    *,
    python: str = sys.executable,
    program: str = resilient_loop.__file__,
) -> AppDef:
    """Return the app of two replicas that run the loop of :mod:`resilient_loop`.

    Args:
        folder: The folder for results.
        fault: The fault.
        retries: How often a failure of the program is retried.
        python: The interpreter of the jobs, which can import ``torchx_resilience``.
        program: Path of the loop.
    """
    role = Role(
        *("rank", ""),
        entrypoint=python,
        args=[program, str(folder), fault],
        env={"TORCHX_NUM_REPLICAS": str(WORLD)},
        num_replicas=WORLD,
        max_retries=retries,
        resource=Resource(cpu=1, gpu=0, memMB=50),
    )
    return AppDef("loop", [role])


def reasons(found: DescribeAppResponse) -> list[str | None]:
    """Return why each attempt ended."""
    return [attempt.reason for attempt in found.attempts]


def at_fault(folder: Path) -> None:
    """Wait until each rank waits for a fault from outside."""
    wait_until(lambda: all((folder / f"pid-{rank}").exists() for rank in range(WORLD)))


class AttemptCases:
    """Cases for a batch system; the working directory of a test is new.

    Attributes:
        limit: A time limit that lets the first attempt reach the fault.
        again: The reason of an attempt that the system starts again by itself.
        knows_steps: Whether the description has committed steps.
        knows_nodes: Whether the description has the nodes of attempts that have ended.
    """

    limit = "60s"
    again = "preempted"
    knows_steps = True
    knows_nodes = True

    def start_again(self, app_id: str) -> None:
        """Let the system end the second replica, and start it again."""
        raise NotImplementedError

    def submit(self, scheduler: Scheduler[Any], fault: str, retries: int = 0, **cfg: str) -> str:
        """Submit the loop."""
        cfg = {"resume_dir": "resume", **cfg}
        return scheduler.submit(loop(Path.cwd(), fault, retries), cfg)

    def check(self, scheduler: Scheduler[Any], app_id: str, *expected: str) -> None:
        """Check the results of an app whose attempts have these reasons."""
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.SUCCEEDED
        assert reasons(found) == [*expected, "succeeded"], found
        assert all(attempt.started and attempt.ended for attempt in found.attempts), found.attempts
        assert resilient_loop.check(Path.cwd(), WORLD) == ["none", *expected]
        earlier = found.attempts[:-1]  # the runner adds the nodes of the last one
        assert all(bool(attempt.nodes) is self.knows_nodes for attempt in earlier), earlier
        if self.knows_steps:
            assert found.attempts[-1].committed_step == resilient_loop.END - 1
        assert found.num_restarts == len(expected)

    @pytest.mark.gate
    @pytest.mark.parametrize(("fault", "reason"), [("request", "requested"), ("failure", "failed")])
    def test_exit_code_starts_the_next_attempt(
        self, scheduler: Scheduler[Any], fault: str, reason: str
    ) -> None:
        app_id = self.submit(scheduler, fault, 1)
        self.check(scheduler, app_id, reason)

    def test_time_limit_starts_the_next_attempt(self, scheduler: Scheduler[Any]) -> None:
        app_id = self.submit(scheduler, "limit", time=self.limit)
        self.check(scheduler, app_id, "time-limit")

    def test_job_that_the_system_starts_again(self, scheduler: Scheduler[Any]) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        pid = int(Path("pid-1").read_text())
        self.start_again(app_id)
        wait_until(lambda: not psutil.pid_exists(pid))
        Path("go").touch()
        self.check(scheduler, app_id, self.again)

    def test_cancel_is_the_end(self, scheduler: Scheduler[Any]) -> None:
        app_id = self.submit(scheduler, "outside")
        at_fault(Path.cwd())
        scheduler.cancel(app_id)
        found = wait_for(scheduler, app_id)
        assert found.state == AppState.CANCELLED
        assert reasons(found) == ["cancelled"]
        assert found.num_restarts == 0
