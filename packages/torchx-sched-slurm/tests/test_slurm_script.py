"""The batch script, partly run by a real bash."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from slurm_requests import role, script_text

from torchx_sched_slurm.request import SlurmReplicaRequest
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, Role, macros


# Hypothesis also generates strings from our sources, and so macros, which would be substituted.
class TestArguments:
    def run(self, lines: list[str], path: Path) -> list[str]:
        """Run a role's function as the script does, for job 7 and replica 3."""
        body = "\n".join(lines)
        path.write_text(f"role_0() {{\n{body}\n}}\n(role_0 7 3)\n", "ascii")
        done = subprocess.run(["/bin/bash", str(path)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return [w.decode("utf-8", "surrogateescape") for w in done.stdout.split(b"\0")[:-1]]

    PRINT = ("-c", 'printf "%s\\0" "$@"', "-")

    def test_macros_are_substituted(self, tmp_path: Path) -> None:
        args = [macros.app_id, f"r{macros.replica_id}'", macros.img_root, "$${app_id}", "$x $$"]
        words = [*self.PRINT, *args]
        request = SlurmReplicaRequest("main", "/bin/bash", words, {}, {}, {}, img_root="/img")
        assert self.run(request.command_lines(), tmp_path / "s") == [
            "7",
            "r3'",
            "/img",
            "${app_id}",
            "$x $$",
        ]

    def test_nul_character_is_an_error(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(ValueError, match=r"role 'trainer': args\[1\] contains a NUL"):
            script_text(scheduler, role(args=["a", "b\0c"]))

    def test_secrets_are_masked_in_dry_runs(self, scheduler: SlurmScheduler) -> None:
        args = ["--api-key", "hush", "--password=hush", "--lr", "1"]
        secrets = {"env": {"HF_TOKEN": "hush"}, "args": args}
        cfg = {"setup": ["export WANDB_API_KEY=hush"], "comment": "token=hush"}
        info = scheduler.submit_dryrun(AppDef("x", [role(**secrets)]), cfg)
        assert "hush" not in str(info)
        assert "--api-key '***' '--password=***' --lr 1" in str(info)
        assert "hush" in info.request.materialize()


class TestSize:
    def test_script_for_256_nodes_is_small_and_ascii(self, scheduler: SlurmScheduler) -> None:
        job = role(
            num_replicas=256,
            entrypoint="bash",
            args=["-c", "torchrun --rdzv_endpoint $${TORCHX_RANK0_HOST:=localhost}:29500 train.py"],
            env={"LOGLEVEL": "WARNING", "TORCHX_JOB_ID": f"slurm://torchx/{macros.app_id}"},
        )
        made = script_text(scheduler, job, partition="gpu", time="2:00:00")
        assert len(made) < 9000
        assert re.fullmatch(r"[\n -~]*", made)

    def test_size_does_not_depend_on_the_number_of_replicas(
        self, scheduler: SlurmScheduler
    ) -> None:
        sizes = {len(script_text(scheduler, role(num_replicas=n))) for n in (100, 999)}
        assert len(sizes) == 1


def test_script_is_valid_bash(scheduler: SlurmScheduler) -> None:
    made = script_text(scheduler, role("it's", args=["x\ny", "'"]), role("b", num_replicas=2))
    done = subprocess.run(["/bin/bash", "-n"], input=made, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("requeues", "reports"), [("0", False), ("1", True)])
def test_replica_of_an_earlier_attempt_reports_nothing(
    scheduler: SlurmScheduler, tmp_path: Path, requeues: str, reports: bool
) -> None:
    """A node that the controller has lost may still run the replica."""
    path = tmp_path / "script.sh"
    path.write_text(script_text(scheduler, role(entrypoint="false", args=[])))
    (tmp_path / "started").write_text("1 7 100\n")
    environ = {"PATH": "/usr/bin:/bin", "SLURM_PROCID": "0", "SLURMD_NODENAME": "n1"}
    words = ["replica", str(tmp_path), str(tmp_path), "7", requeues]
    subprocess.run(["/bin/bash", str(path), *words], env=environ, check=False)
    assert (tmp_path / "failed").exists() is reports
    assert (tmp_path / "replica-0-0").exists() is reports


class TestRequeue:
    """The script of a failed job, run with doubles of Slurm's commands."""

    @pytest.fixture
    def outcome(
        self, scheduler: SlurmScheduler, tmp_path: Path, command_double: Callable[..., Path]
    ) -> Callable[[str], str]:
        """Return a function that runs the script and returns the state of its outcome.

        Its argument is the shell code that ``scontrol requeue`` runs.
        """
        text = script_text(scheduler, role(max_retries=1), job_dir=str(tmp_path))
        path = tmp_path / "script.sh"
        path.write_text(text)
        command_double("srun", "exit 3")

        def run(requeue: str) -> str:
            command_double(
                "scontrol",
                'case "$*" in *hostnames*) echo localhost;; '
                f'*"show job"*) echo " JobState=RUNNING ";; requeue*) {requeue};; esac',
            )
            environ = {
                "PATH": f"{tmp_path / 'doubles'}:/usr/bin:/bin",
                "SLURM_JOB_ID": "7",
                "SLURM_JOB_NODELIST": "n1",
                "SLURM_RESTART_COUNT": "0",
            }
            done = subprocess.run(
                ["/bin/bash", str(path)], env=environ, cwd=tmp_path, capture_output=True, timeout=60
            )
            assert done.returncode == 3, done.stderr
            (record,) = tmp_path.glob("**/outcome")
            return record.read_text().split()[0]

        return run

    def test_job_is_requeued(self, outcome: Callable[[str], str]) -> None:
        assert outcome("exit 0") == "REQUEUED"

    def test_signal_that_slurm_sends_while_it_requeues_is_not_a_failure(
        self, outcome: Callable[[str], str]
    ) -> None:
        assert outcome("kill -TERM $$; exit 0") == "REQUEUED"

    def test_refused_requeue_is_a_failure(self, outcome: Callable[[str], str]) -> None:
        assert outcome("exit 1") == "FAILED"


def run_script(scheduler: SlurmScheduler, record: Path, job: Role, **cfg: object) -> None:
    """Run the batch script of job 5, which has this record, with doubles of Slurm's commands."""
    request = scheduler.submit_dryrun(AppDef("app", [job]), cfg).request
    script = record.parents[1] / "script.sh"
    script.write_text(replace(request, record=str(record)).materialize())
    variables = {"SLURM_JOB_ID": "5", "SLURM_JOB_NODELIST": "n1"}
    environ = {**variables, "PATH": f"{os.environ['PATH']}:/usr/bin:/bin"}
    subprocess.run(["/bin/bash", script], env=environ, check=False)


def test_job_that_is_cancelled_while_it_starts_reports_its_end(
    scheduler: SlurmScheduler, tmp_path: Path, command_double: Callable[..., Path]
) -> None:
    record = tmp_path / ".torchx-slurm" / "mark"
    command_double("srun", f"touch {tmp_path}/started")
    command_double("scontrol", "echo 'JobId=5 JobState=CANCELLED Reason=None '")
    command_double("getent", "kill -TERM $PPID")  # the script calls it before srun
    run_script(scheduler, record, role())
    assert (record / "outcome").read_text().startswith("FAILED 143")
    assert "JobState=CANCELLED" in (record / "ending").read_text()
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(("line", "is_failed"), [("false", True), ("kill -TERM $$; false", False)])
def test_setup_that_a_cancellation_ends_is_no_failed_setup(
    scheduler: SlurmScheduler,
    tmp_path: Path,
    command_double: Callable[..., Path],
    line: str,
    is_failed: bool,
) -> None:
    record = tmp_path / ".torchx-slurm" / "mark"
    command_double("srun", f"touch {tmp_path}/started")
    command_double("scontrol", "echo 'JobId=5 JobState=CANCELLED Reason=None '")
    run_script(scheduler, record, role(), setup=[line])
    assert (record / "setup").exists() is is_failed
    assert (record / "outcome").read_text().startswith("FAILED 1 ")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("cfg", [{}, {"requeue": True}], ids=["default", "requeue"])
def test_early_signal_before_the_time_limit_does_not_kill_the_script(
    scheduler: SlurmScheduler,
    tmp_path: Path,
    command_double: Callable[..., Path],
    cfg: dict[str, object],
) -> None:
    """Slurm may send it half a minute early, and so before srun runs."""
    record = tmp_path / ".torchx-slurm" / "mark"
    srun = command_double("srun", f"echo '0 n1 5 9 0' > {record}/replica-0-0")
    command_double("scontrol", "echo 'JobId=5 JobState=RUNNING Reason=None '")
    run_script(scheduler, record, role(), setup=["kill -USR1 $$", "kill -USR2 $$"], **cfg)
    assert srun.exists()
    assert (record / "outcome").read_text().startswith("SUCCEEDED 0 ")


@pytest.mark.parametrize(
    ("replica", "outcome"), [("0 n1 5", "FAILED 143"), ("0 n1 5 9 0", "FAILED 143")]
)
def test_srun_that_exits_with_0_after_the_tasks_were_killed(
    scheduler: SlurmScheduler,
    tmp_path: Path,
    command_double: Callable[..., Path],
    replica: str,
    outcome: str,
) -> None:
    """On Slurm 24.11, srun exited with 0 although the job was cancelled.

    Here srun ends while the script queries the cancelled job.
    """
    record = tmp_path / ".torchx-slurm" / "mark"
    command_double(
        "srun",
        f"echo '{replica}' > {record}/replica-0-0; echo $$ > {tmp_path}/pid; kill -TERM $PPID;"
        f" until [ -e {tmp_path}/query ]; do sleep 0.02; done",
    )
    command_double(
        "scontrol",
        f"if [ -e {tmp_path}/pid ]; then touch {tmp_path}/query;"
        f" while kill -0 $(cat {tmp_path}/pid); do sleep 0.02; done; fi;"
        " echo 'JobId=5 JobState=CANCELLED Reason=None '",
    )
    run_script(scheduler, record, role())
    assert (record / "outcome").read_text().startswith(outcome)


@pytest.mark.parametrize(
    ("reports", "outcome"),
    [
        (["0 n1 5 9 0", "0 n2 5 9 0"], "SUCCEEDED 0"),
        (["0 n1 5 9 0", "0 n2 5"], "FAILED 143"),
        (["0 n1 5 9 0", ""], "FAILED 143"),
        (["0 n1 5 9 0", "0 n2 5 9 7"], "FAILED 7"),
    ],
    ids=["all ended", "lost", "never started", "failed"],
)
def test_srun_that_exits_with_0_without_the_end_of_a_replica(
    scheduler: SlurmScheduler,
    tmp_path: Path,
    command_double: Callable[..., Path],
    reports: list[str],
    outcome: str,
) -> None:
    """srun of 22.05 exits with 0 after the failure of a node."""
    record = tmp_path / ".torchx-slurm" / "mark"
    write = (f"echo '{text}' > {record}/replica-0-{k};" for k, text in enumerate(reports) if text)
    command_double("srun", f"{' '.join(write)} exit 0")
    command_double("scontrol", "echo 'JobId=5 JobState=RUNNING Reason=None '")
    command_double("sleep", "exit 0")  # the script waits for late reports
    run_script(scheduler, record, role(num_replicas=2))
    assert (record / "outcome").read_text().startswith(f"{outcome} ")


WRITTEN = Path(__file__).parent / "written"


@pytest.mark.parametrize(
    ("messages", "shown", "cause"),
    [
        ("srun-oom-21.08.txt", " JobState=RUNNING ", "OUT_OF_MEMORY"),
        ("srun-oom-24.05.txt", " JobState=RUNNING ", "OUT_OF_MEMORY"),
        ("srun-time-24.05.txt", " JobState=COMPLETING Reason=None ", "TIMEOUT"),
        ("srun-preempted-24.05.txt", " JobState=COMPLETING Reason=None ", "PREEMPTED"),
        ("srun-node-24.05.txt", " JobState=RUNNING ", "NODE_FAIL"),
        ("", "JobId=5 JobState=COMPLETING Reason=TimeLimit ", "TIMEOUT"),
        ("", "JobId=5 JobName=oom-kill JobState=CANCELLED Reason=None ", "CANCELLED"),
        ("", "JobId=5 JobState=RUNNING Reason=None ", "RUNNING"),
        ("", "", ""),
    ],
)
def test_the_outcome_names_the_cause(
    scheduler: SlurmScheduler,
    tmp_path: Path,
    command_double: Callable[..., Path],
    messages: str,
    shown: str,
    cause: str,
) -> None:
    record = tmp_path / ".torchx-slurm" / "mark"
    command_double("srun", f"cat {WRITTEN / messages} >&2; exit 9" if messages else "exit 9")
    command_double("scontrol", f"echo '{shown}'" if shown else "exit 1")
    run_script(scheduler, record, role())
    state, code, attempt, _, *found = (record / "outcome").read_text().split()
    assert ([state, code, attempt], found) == (["FAILED", "9", "0"], [cause] if cause else [])
