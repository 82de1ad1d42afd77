"""Jobs that Slurm ends and starts again, or loses with a node, polled on a real Slurm.

The partitions ``requeued`` and ``cancelled`` have one node, which jobs of the partition ``urgent``
take from them: PreemptMode is REQUEUE in the first and CANCEL in the second partition.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from slurm_functions import attempt_of
from slurm_jobs import (
    PLAIN,
    RELEASES,
    Cluster,
    app,
    wait_for,
    wait_until_forgotten,
    with_and_without_accounting,
)

from patience import PATIENCE
from patience import wait_for as wait_until
from torchx_functions import Executor
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppState
from torchx_specs.schedulers import DescribeAppResponse
from torchx_sweep import ElementState, status

POLL_SECONDS = 0.2
# Each attempt reports its start; the second one ends when the file `finish` exists.
LINE = (
    'touch "up${SLURM_RESTART_COUNT:-0}"; [ "${SLURM_RESTART_COUNT:-0}" = 0 ] || until'
    " [ -e finish ]; do sleep 0.1; done; [ ${SLURM_RESTART_COUNT:-0} = 1 ] && exit 0;"
)
WAIT = "for i in {1..900}; do sleep 0.2; done"
ONCE = [AppState.RUNNING, AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED]


def command(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


class Poll:
    """Polls a job in a thread until it has ended, and keeps what changed."""

    def __init__(self, scheduler: SlurmScheduler, app_id: str) -> None:
        self.found: list[DescribeAppResponse] = []
        self._scheduler, self._app_id = scheduler, app_id
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopped.wait(POLL_SECONDS):
            found = self._scheduler.describe(self._app_id)
            assert found is not None
            self.found.append(found)

    def wait_for(self, state: AppState) -> None:
        wait_until(lambda: self.found and self.found[-1].state == state, lambda: self.found)

    def states(self) -> list[AppState]:
        """Stop, and return the states in their order, without repetitions."""
        self._is_stopped.set()
        self._thread.join()
        return [state for state, _ in groupby(each.state for each in self.found)]


@pytest.fixture
def poll(scheduler: SlurmScheduler) -> Iterator[Callable[[str], Poll]]:
    polls: list[Poll] = []

    def start(app_id: str) -> Poll:
        polls.append(Poll(scheduler, app_id))
        return polls[-1]

    yield start
    for each in polls:
        each.states()


def take_node() -> str:
    """Submit a job that takes the node of the preemptible partitions until ``free`` exists."""
    line = "until [ -e free ]; do sleep 0.1; done"
    return command(
        *("sbatch", "--parsable", "-p", "urgent", "--exclusive", "-o", "/dev/null"),
        *("--wrap", line),
    )


def wait_for_file(name: str) -> None:
    wait_until(Path(name).exists, lambda: f"no file {name}")


class TestPreemption:
    @pytest.mark.gate
    @pytest.mark.parametrize("cluster", [PLAIN, "accounting", *RELEASES], indirect=True)
    @pytest.mark.parametrize("trap", ["", "trap 'exit 0' TERM; "], ids=["killed", "exits with 0"])
    def test_requeued_job_is_pending_between_its_attempts(
        self, scheduler: SlurmScheduler, poll: Callable[[str], Poll], trap: str
    ) -> None:
        app_id = scheduler.submit(app(LINE + trap + WAIT), {"partition": "requeued"})
        wait_for_file("up0")
        polled = poll(app_id)
        polled.wait_for(AppState.RUNNING)
        take_node()
        polled.wait_for(AppState.PENDING)
        Path("free").touch()
        wait_for_file("up1")
        polled.wait_for(AppState.RUNNING)
        Path("finish").touch()
        polled.wait_for(AppState.SUCCEEDED)
        assert polled.states() == ONCE
        waits = {each.msg for each in polled.found if each.state == AppState.PENDING}
        assert [each for each in waits if not each.startswith("requeued")] == []
        assert [each for each in waits if "BeginTime" in each] == []
        assert polled.found[-1].num_restarts == 1

    @with_and_without_accounting
    @pytest.mark.parametrize("is_refused", [False, True], ids=["partition", "job"])
    def test_cancelled_job_is_over(
        self,
        scheduler: SlurmScheduler,
        cluster: Cluster,
        poll: Callable[[str], Poll],
        is_refused: bool,
    ) -> None:
        """Either the partition cancels preempted jobs, or the job must not be requeued."""
        partition = "requeued" if is_refused else "cancelled"
        line = LINE + "trap 'exit 0' TERM; " + WAIT
        app_id = scheduler.submit(app(line), {"partition": partition})
        wait_for_file("up0")
        if is_refused:
            command("scontrol", "update", f"jobid={app_id}", "requeue=0")
        polled = poll(app_id)
        polled.wait_for(AppState.RUNNING)
        take_node()
        polled.wait_for(AppState.FAILED)
        Path("free").touch()
        wait_until_forgotten(cluster, app_id)
        states = polled.states()
        assert states == [AppState.RUNNING, AppState.FAILED]
        assert polled.found[-1].msg.startswith("PREEMPTED")
        assert not Path("up1").exists()

    def test_commands_sweeps_and_functions_wait_for_the_next_attempt(
        self,
        scheduler: SlurmScheduler,
        environment: dict[str, str],
        cluster: Cluster,
        work: Path,
        tmp_path: Path,
    ) -> None:
        torchx = str(Path(sys.executable).parent / "torchx")
        environment = {**environment, **cluster.variables, "TORCHX_HOME": os.environ["TORCHX_HOME"]}
        program = ["--", "bash", "-c", f"cd '{work}'; {LINE} {WAIT}"]
        options = ["-s", "slurm", "-cfg", "partition=requeued"]

        folder = tmp_path / "client"  # the workspace, which must not change during a submission
        folder.mkdir()

        def start(name: str, *argv: str) -> subprocess.Popen[str]:
            with (
                open(tmp_path / f"{name}.out", "w") as out,
                open(tmp_path / f"{name}.err", "w") as err,
            ):
                return subprocess.Popen(
                    [torchx, *argv], env=environment, cwd=folder, text=True, stdout=out, stderr=err
                )

        def output(name: str) -> str:
            return (tmp_path / name).read_text()

        executor = Executor(folder=tmp_path / "shared", scheduler="slurm", mem_mb=10)
        executor.update_parameters(slurm_partition="requeued")
        job = executor.submit(attempt_of, str(work))
        waiting = [
            start("run", "run", "--wait", *options, "utils.sh", "--memMB=50", *program),
            start(
                *("sweep", "sweep", "run", "--wait", *options),
                *("utils.sh", "--grid", "memMB=50,60", *program),
            ),
        ]
        running = ["squeue", "-h", "-t", "R,CG", "-p", "requeued", "-o", "%i"]
        wait_until(lambda: len(command(*running).split()) == 4, lambda: command("squeue"))
        handle = f"slurm://torchx/{command(*running).split()[0]}"
        waiting.append(start("wait", "wait", handle))
        wait_for_file("up0")
        wait_for_file("function")
        take_node()
        wait_until(lambda: not command(*running), lambda: command("squeue"))
        # each command has polled its apps between the attempts
        wait_until(lambda: "requeued" in output("run.err"), lambda: output("run.err"))
        wait_until(lambda: "requeued" in output("wait.err"), lambda: output("wait.err"))
        sweep = output("sweep.out").strip()
        wait_until(lambda: status(sweep).counts == {ElementState.SUBMITTED: 2})
        assert [process.poll() for process in waiting] == [None] * 3
        Path("free").touch()
        Path("finish").touch()
        assert [process.wait(PATIENCE) for process in waiting] == [0, 0, 0]
        assert job.result(timeout=PATIENCE) == "1"


class TestRequeue:
    def test_retry_is_pending_with_its_cause(
        self, scheduler: SlurmScheduler, poll: Callable[[str], Poll]
    ) -> None:
        app_id = scheduler.submit(
            app(LINE + "until [ -e go ]; do sleep 0.1; done; exit 3", max_retries=1), {}
        )
        wait_for_file("up0")
        polled = poll(app_id)
        polled.wait_for(AppState.RUNNING)
        Path("go").touch()
        wait_for_file("up1")
        polled.wait_for(AppState.RUNNING)
        Path("finish").touch()
        polled.wait_for(AppState.SUCCEEDED)
        assert polled.states() == ONCE
        waits = {each.msg for each in polled.found if each.state == AppState.PENDING}
        assert any(each.startswith("requeued: attempt 1 has failed") for each in waits), waits
        assert [each for each in waits if not each.startswith("requeued")] == []

    def test_held_requeue_says_that_somebody_must_release_the_job(
        self, scheduler: SlurmScheduler, poll: Callable[[str], Poll]
    ) -> None:
        app_id = scheduler.submit(app(LINE + WAIT), {})
        wait_for_file("up0")
        polled = poll(app_id)
        polled.wait_for(AppState.RUNNING)
        command("scontrol", "requeuehold", app_id)
        wait_until(lambda: "somebody runs scontrol release" in polled.found[-1].msg)
        command("scontrol", "release", app_id)
        wait_for_file("up1")
        polled.wait_for(AppState.RUNNING)
        Path("finish").touch()
        polled.wait_for(AppState.SUCCEEDED)
        assert polled.states() == ONCE


class TestNodes:
    @pytest.fixture
    def lose_node(self, cluster: Cluster) -> Iterator[Callable[[], None]]:
        """Yield a function that declares n4 down; afterwards n4 is up again."""

        def lose() -> None:
            command("scontrol", "update", "nodename=n4", "state=down", "reason=test")

        yield lose
        # slurmd may have registered the node again, which makes this state invalid
        subprocess.run(["scontrol", "update", "nodename=n4", "state=resume"], check=False)
        # sinfo of 22.05 shows the state of the lost job for ever
        wait_until(lambda: "State=IDLE " in command("scontrol", "show", "node", "n4"))

    @pytest.mark.gate
    @with_and_without_accounting
    def test_job_of_a_lost_node_has_failed(
        self,
        scheduler: SlurmScheduler,
        cluster: Cluster,
        poll: Callable[[str], Poll],
        lose_node: Callable[[], None],
        work: Path,
    ) -> None:
        line = 'touch "up$0"; ' + "trap 'exit 0' TERM; " + WAIT
        job = app(line, "${replica_id}", num_replicas=2)
        app_id = scheduler.submit(job, {"nodelist": "n3,n4"})
        command("scontrol", "update", f"jobid={app_id}", "requeue=0")
        wait_for_file("up0")
        wait_for_file("up1")
        polled = poll(app_id)
        polled.wait_for(AppState.RUNNING)
        lose_node()
        polled.wait_for(AppState.FAILED)
        wait_until_forgotten(cluster, app_id)
        assert polled.states() == [AppState.RUNNING, AppState.FAILED]
        assert polled.found[-1].msg.startswith("NODE_FAIL")
        (outcome,) = work.glob(".torchx-slurm/*/outcome")
        assert outcome.read_text().startswith("FAILED ")


@with_and_without_accounting
def test_held_job_that_is_cancelled_has_no_start(
    scheduler: SlurmScheduler, cluster: Cluster
) -> None:
    app_id = scheduler.submit(app("true"), {"extra": ["hold"]})
    wait_for(scheduler, app_id, AppState.PENDING)
    scheduler.cancel(app_id)
    assert wait_for(scheduler, app_id).started is None
    wait_until_forgotten(cluster, app_id)
    found = scheduler.describe(app_id)
    assert found is not None
    assert (found.state, found.started) == (AppState.CANCELLED, None)
    (listed,) = [each for each in scheduler.list() if each.app_id == app_id]
    assert listed.started is None
