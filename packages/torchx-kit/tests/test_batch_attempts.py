"""Tests of the job script of batch systems with the option ``requeue``.

The jobs are processes, which a mock of a queue starts again as batch systems do: after the exit
code that asks for it, and after a loss of their host.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from patience import wait_for
from torchx_kit.batch.script import EXIT_AGAIN, attempt_lines, render
from torchx_kit.batch.system import ScriptParts
from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.attempts import AttemptRules, refusal
from torchx_kit.jobs.records import JobRecord
from torchx_kit.scripts.attempt_script import attempt_functions
from torchx_specs import AppState

SHOW = "echo attempt $TORCHX_ATTEMPT ${TORCHX_RESTART_REASON-none}; "


class MockQueue:
    """Runs the replicas of one role, each in a session of its own."""

    def __init__(
        self,
        folder: Path,
        script: str,
        replicas: int = 1,
        *,
        retries: int = 0,
        attempt: str = "",
    ) -> None:
        self.folder, self.replicas = folder, replicas
        self.record = JobRecord(LocalHost(), str(folder / ".torchx" / "app"))
        Path(self.record.path).mkdir(parents=True)
        self.script = Path(self.record.path) / "script"
        text = render(
            header=[],
            app_id="app",
            roles=[(replicas, retries, "main")],
            commands=[[f"exec -- /bin/bash -c {_quoted(script)}"]],
            parts=ScriptParts(task='"$2"'),
            attempt=attempt or attempt_lines(AttemptRules()),
        )
        self.script.write_text(text)
        self.jobs: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, k: int) -> None:
        self.jobs[k] = subprocess.Popen(
            ["/bin/bash", self.script, "0", str(k)], start_new_session=True, env=_environment()
        )

    def lose(self, k: int, *, with_notice: bool = False) -> None:
        """End a job, with a signal before or as a host that fails, and start the job again."""
        if with_notice:
            os.killpg(self.jobs[k].pid, signal.SIGTERM)
            wait_for((Path(self.record.path) / f"signalled-0-{k}").exists)
        os.killpg(self.jobs[k].pid, signal.SIGKILL)
        self.jobs[k].wait()
        self.start(k)

    def run(self) -> list[int]:
        """Start all jobs, and return their last exit codes."""
        for k in range(self.replicas):
            self.start(k)
        return self.finish()

    def finish(self) -> list[int]:
        ended: dict[int, int] = {}

        def has_ended() -> bool:
            for k, job in list(self.jobs.items()):
                code = job.poll()
                if code == EXIT_AGAIN:
                    self.start(k)
                elif code is not None:
                    ended[k] = code
            return len(ended) == self.replicas

        wait_for(has_ended)
        return [ended[k] for k in range(self.replicas)]

    def lines(self, k: int = 0) -> list[str]:
        return (self.folder / f"app-main-{k}.out").read_text().splitlines()

    def wait_for_line(self, k: int, line: str) -> None:
        path = self.folder / f"app-main-{k}.out"
        wait_for(lambda: path.exists() and line in self.lines(k), lambda: f"{path}: {line}")

    def reasons(self) -> list[str | None]:
        found = JobRecord(LocalHost(), self.record.path).attempt_statuses(AppState.SUCCEEDED)
        return [attempt.reason for attempt in found]

    def kill(self) -> None:
        for job in self.jobs.values():
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


@contextmanager
def queue(*args: object, **options: object) -> Iterator[MockQueue]:
    made = MockQueue(*args, **options)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.kill()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _environment() -> Mapping[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("TORCHX_")}


def until(attempt: int, code: int) -> str:
    """Return a script that ends with a code in the attempts before the given one."""
    return f"{SHOW}[ $TORCHX_ATTEMPT -ge {attempt} ] || exit {code}"


def test_exit_code_75_starts_all_replicas_again(tmp_path: Path) -> None:
    script = f"{SHOW}[ $TORCHX_REPLICA_ID = 1 ] || exit 0; {until(2, 75)}"
    with queue(tmp_path, script, 3) as jobs:
        assert jobs.run() == [0, 0, 0]
        assert jobs.reasons() == ["requested", "requested", "succeeded"]
        assert jobs.lines(1)[0] == "attempt 0 none"
        for k in range(3):  # the others may start only after the end of the second attempt
            assert jobs.lines(k).count("--- attempt 3 ---") == 1
            assert jobs.lines(k)[-1] == "attempt 2 requested"


def test_other_replicas_are_ended_before_the_next_attempt(tmp_path: Path) -> None:
    script = (
        f"{SHOW}[ $TORCHX_ATTEMPT = 0 ] || exit 0; [ $TORCHX_REPLICA_ID = 1 ] || exit 75;"
        " trap '' TERM; sleep 1000"
    )
    with queue(tmp_path, script, 2) as jobs:
        assert jobs.run() == [0, 0]
        assert jobs.reasons() == ["requested", "succeeded"]


@pytest.mark.parametrize(("retries", "ends"), [(0, ["failed"]), (1, ["failed", "failed"])])
def test_failures_of_the_program_use_up_max_retries(
    tmp_path: Path, retries: int, ends: list[str]
) -> None:
    with queue(tmp_path, "exit 7", retries=retries) as jobs:
        assert jobs.run() == [7]
        assert jobs.reasons() == ends
        failure = jobs.record.first_failure()
        assert failure is not None
        assert failure.exit_code == 7
        assert jobs.record.refusal() == ""


def test_code_of_the_queue_is_no_request_of_the_program(tmp_path: Path) -> None:
    with queue(tmp_path, f"exit {EXIT_AGAIN}") as jobs:
        assert jobs.run() == [1]
        assert jobs.reasons() == ["failed"]


def test_further_exit_codes_ask_for_another_attempt(tmp_path: Path) -> None:
    attempt = attempt_lines(AttemptRules(exit_codes=(75, 3)))
    with queue(tmp_path, until(1, 3), attempt=attempt) as jobs:
        assert jobs.run() == [0]
        assert jobs.reasons() == ["requested", "succeeded"]


@pytest.mark.parametrize(("with_notice", "reason"), [(False, "node-failure"), (True, "preempted")])
def test_job_that_the_queue_starts_again_begins_an_attempt(
    tmp_path: Path, with_notice: bool, reason: str
) -> None:
    wait = "trap 'sleep 1000' TERM; echo ready; sleep 1000 & wait"
    script = f"{SHOW}[ $TORCHX_ATTEMPT = 1 ] || {{ {wait}; }}"
    with queue(tmp_path, script, 2) as jobs:
        for k in (0, 1):
            jobs.start(k)
        for k in (0, 1):
            jobs.wait_for_line(k, "ready")
        jobs.lose(1, with_notice=with_notice)
        assert jobs.finish() == [0, 0]
        assert jobs.reasons() == [reason, "succeeded"]
        assert f"attempt 1 {reason}" in jobs.lines(0)


def test_node_failures_have_a_budget(tmp_path: Path) -> None:
    attempt = attempt_lines(AttemptRules(max_node_failures=0))
    with queue(tmp_path, "echo on; sleep 1000", attempt=attempt) as jobs:
        jobs.start(0)
        jobs.wait_for_line(0, "on")
        jobs.lose(0)
        assert jobs.finish() == [1]
        assert "too many node failures" in JobRecord(LocalHost(), jobs.record.path).refusal()


def test_program_has_time_before_its_limit(tmp_path: Path) -> None:
    script = (
        f"{SHOW}[ $TORCHX_ATTEMPT = 1 ] && exit;"
        " echo $TORCHX_STOP_GRACE $PET_SIGNALS_TO_HANDLE $PET_SHUTDOWN_TIMEOUT;"
        " trap 'echo saved; exit 75' USR1; [ $TORCHX_REPLICA_ID = 0 ] || trap 'exit 3' USR1;"
        " echo ready; while :; do sleep 0.1; done"
    )
    with queue(tmp_path, script, 2, attempt=attempt_lines(AttemptRules(), seconds=3600)) as jobs:
        for k in (0, 1):
            jobs.start(k)
        for k in (0, 1):
            jobs.wait_for_line(k, "ready")
        # as if another replica had sent the signal
        (Path(jobs.record.path) / "limit-0").touch()
        assert jobs.finish() == [0, 0]
        assert jobs.reasons() == ["time-limit", "succeeded"]
        assert "saved" in jobs.lines(0)
        signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
        assert f"SIGUSR1=100,SIGTERM=10 {signals} 100" in jobs.lines(0)
        assert "attempt 1 time-limit" in jobs.lines(1)


def test_time_of_all_attempts_is_limited(tmp_path: Path) -> None:
    attempt = attempt_lines(AttemptRules(max_total_seconds=1))
    with queue(tmp_path, "trap '' TERM; sleep 1000", attempt=attempt) as jobs:
        assert jobs.run() != [0]
        assert jobs.reasons() == ["time-limit"]
        assert "max_total_time" in JobRecord(LocalHost(), jobs.record.path).refusal()


def test_attempts_without_progress_end_the_app(tmp_path: Path) -> None:
    resume = tmp_path / "runs" / "a"
    script = (
        "mkdir -p $TORCHX_RESUME_DIR/step-$((TORCHX_ATTEMPT < 2 ? TORCHX_ATTEMPT : 1)); exit 75"
    )
    with queue(tmp_path, script, attempt=attempt_lines(AttemptRules(), str(resume))) as jobs:
        assert jobs.run() == [75]
        assert jobs.reasons() == ["requested"] * 5
        assert "no new step" in JobRecord(LocalHost(), jobs.record.path).refusal()
        steps = [one.committed_step for one in jobs.record.attempt_statuses(AppState.FAILED)]
        assert steps == [0, 1, 1, 1, 1]
        assert resume.stat().st_mode & 0o777 == 0o700


REASONS = ("failed", "out-of-memory", "node-failure", "preempted", "time-limit", "requested")


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("before", [(), ("failed",), ("node-failure",) * 2, ("preempted",) * 2])
@pytest.mark.parametrize("steps", [(None,) * 4, (None, 1, 1, 1), (None, 1, 1, 2), (7, 7, 7, 7)])
@pytest.mark.parametrize("rules", [AttemptRules(), AttemptRules(1, 30.0)])
@pytest.mark.parametrize("has_folder", [False, True])
def test_script_has_the_rules_of_the_scheduler(
    tmp_path: Path,
    reason: str,
    before: tuple[str, ...],
    steps: tuple[int | None, ...],
    rules: AttemptRules,
    has_folder: bool,
) -> None:
    reasons = [*before, reason]
    steps = steps[: len(reasons) + 1]
    lines = [
        f"start {k} {100 + 20 * k} {_step(steps[k])} /r\n"
        f"end {reason} {110 + 20 * k} {_step(steps[k + 1])}\n"
        for k, reason in enumerate(reasons)
    ]
    (tmp_path / "attempts").write_text("".join(lines))
    env = {**_environment(), "tx_record": str(tmp_path), "TORCHX_MAX_RETRIES": "1"}
    if has_folder:
        env["TORCHX_RESUME_DIR"] = str(tmp_path)
    functions = attempt_functions(rules, None)
    result = subprocess.run(["/bin/sh", "-c", f"{functions}\ntx_is_refused"], env=env, check=False)
    expected = refusal(
        rules, reasons, steps, 10.0 * len(reasons), max_retries=1, has_folder=has_folder
    )
    assert (result.returncode == 0) is (expected is not None)
    if expected is not None:
        assert (tmp_path / "refused").read_text() == f"{expected or '-'}\n"


def _step(step: int | None) -> str:
    return "-" if step is None else str(step)
