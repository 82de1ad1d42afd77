"""Tests with NeMo-Run 0.11.1: its executors run experiments, and `torchx` finds its schedulers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx_specs.plugins.manager import get_manager

Call = Callable[..., "subprocess.CompletedProcess[str]"]
Script = Callable[..., str]

EXECUTORS = {
    "dgx_cloud",
    "docker_persistent",
    "kubeflow",
    "lepton",
    "local_persistent",
    "skypilot",
    "skypilot_jobs",
    "slurm_tunnel",
}
OURS = set(get_manager().schedulers()) - EXECUTORS


@pytest.fixture(autouse=True)
def nemo_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEMORUN_HOME", str(tmp_path / "nemo"))


EXPERIMENT = """
import json, os, sys
import nemo_run as run

def states(experiment):
    found = experiment.status(return_dict=True)
    print("STATES", json.dumps({name: task["status"].name for name, task in found.items()}))

def task(text, **env):
    return run.Script(inline=text, env=env)

if __name__ == "__main__":
"""


def states(shown: str) -> dict[str, str]:
    (line,) = [line for line in shown.splitlines() if line.startswith("STATES ")]
    return dict(json.loads(line.removeprefix("STATES ")))


def test_the_local_executor_runs_two_tasks(script: Script) -> None:
    shown = script(
        EXPERIMENT
        + """
    with run.Experiment("pair", executor=run.LocalExecutor()) as experiment:
        one = task("echo hello $WHOM; echo oops >&2", WHOM="é w")
        experiment.add(one, name="one", tail_logs=True)
        experiment.add(task("sleep 0.3; echo '$HOME ${app_id}'"), name="two", tail_logs=True)
        experiment.run(detach=False, tail_logs=True)
    states(experiment)
"""
    )
    assert states(shown) == {"one": "SUCCEEDED", "two": "SUCCEEDED"}
    lines = shown.splitlines()
    assert "one/0 hello é w" in lines
    assert "one/0 oops" in lines
    assert [line for line in lines if line.startswith("two/0 ")] == ["two/0 $HOME ${app_id}"]


def test_a_dependent_task_runs_second_and_a_failed_task_is_reported(script: Script) -> None:
    shown = script(
        EXPERIMENT
        + """
    with run.Experiment("chain", executor=run.LocalExecutor()) as experiment:
        first = experiment.add(task("touch made"), name="first")
        experiment.add(task("test -e made && echo found > seen"), name="second",
                       dependencies=[first])
        experiment.run(detach=False)
    states(experiment)
    with run.Experiment("bad", executor=run.LocalExecutor()) as experiment:
        experiment.add(task("exit 3"), name="fails")
        experiment.run(detach=False)
    print(experiment.status(return_dict=True)["fails"]["status"].name)
"""
    )
    assert states(shown) == {"first": "SUCCEEDED", "second": "SUCCEEDED"}
    assert "FAILED" in shown.splitlines()


def test_another_process_finds_the_experiment(script: Script, call: Call) -> None:
    shown = script(
        EXPERIMENT
        + """
    with run.Experiment("later", executor=run.LocalExecutor()) as experiment:
        experiment.add(task("echo from the first process"), name="one")
        experiment.run(detach=False)
    print("ID", experiment._id)
"""
    )
    (name,) = [line.split()[1] for line in shown.splitlines() if line.startswith("ID ")]
    again = script(
        EXPERIMENT
        + f"""
    sys.stderr = sys.stdout
    experiment = run.Experiment.from_id({name!r})
    states(experiment)
    experiment.logs("one")
"""
    )
    assert states(again) == {"one": "SUCCEEDED"}
    assert "one/0 from the first process" in again.splitlines()
    done = call("nemo", "experiment", "logs", name, "0")
    assert done.returncode == 0, done.stderr
    assert "one/0 from the first process" in (done.stdout + done.stderr).splitlines()


def test_a_task_may_be_a_function_with_arguments(script: Script) -> None:
    Path("work_module.py").write_text(
        "def double(x: int, label: str = 'n'):\n    print(label, 2 * x)\n", "utf-8"
    )
    shown = script(
        EXPERIMENT
        + """
    from work_module import double
    executor = run.LocalExecutor(env_vars={"PYTHONPATH": os.getcwd()})
    with run.Experiment("fn", executor=executor) as e:
        e.add(run.Partial(double, x=21, label="answer"), name="double", tail_logs=True)
        e.run(detach=False, tail_logs=True)
    states(e)
"""
    )
    assert states(shown) == {"double": "SUCCEEDED"}
    assert "double/0 answer 42" in shown.splitlines()


def test_cancel_ends_the_process_of_a_task(script: Script) -> None:
    shown = script(
        EXPERIMENT
        + """
    import time
    with run.Experiment("long", executor=run.LocalExecutor()) as experiment:
        experiment.add(task("echo $$ > pid; exec sleep 60"), name="sleeps")
        experiment.run(detach=True)
        while not os.path.exists("pid") or not open("pid").read():
            time.sleep(0.05)
        experiment.cancel("sleeps")
        while os.path.exists(f"/proc/{open('pid').read().strip()}"):
            time.sleep(0.05)
    print("ENDED")
    states(experiment)
"""
    )
    assert "ENDED" in shown.splitlines()
    assert states(shown)["sleeps"] in ("CANCELLED", "FAILED")


def test_a_dry_run_of_the_slurm_executor_writes_batch_scripts(
    script: Script, tmp_path: Path
) -> None:
    shown = script(
        EXPERIMENT
        + """
    executor = run.SlurmExecutor(
        account="team", partition="gpu", nodes=2, ntasks_per_node=4, time="00:10:00",
        container_image="image:1", env_vars={"A": "b"}, packager=run.Packager(),
        tunnel=run.LocalTunnel(job_dir=os.path.join(os.getcwd(), "jobs")), launcher="torchrun",
    )
    with run.Experiment("sl", executor=executor) as experiment:
        experiment.add(
            run.Script(path="train.py", entrypoint="python", args=["--lr", "0.1"]), name="train"
        )
        experiment.add([task("echo a"), task("echo b")],
                       executor=[executor.clone(), executor.clone()], name="group")
        experiment.dryrun(log=True, delete_exp_dir=False)
"""
    )
    assert "sbatch --requeue --parsable" in shown
    (train,) = (tmp_path / "nemo").rglob("*train*_sbatch.sh")
    text = train.read_text()
    for line in ("account=team", "job-name=team-team.train", "nodes=2", "partition=gpu"):
        assert f"#SBATCH --{line}\n" in text
    assert "--nproc-per-node 4 --node-rank $SLURM_NODEID --tee 3 train.py --lr 0.1" in text
    assert "export A=b\n" in text
    (group,) = (tmp_path / "nemo").rglob("*group*_sbatch.sh")
    assert group.read_text().count("srun --output ") == 2


def test_the_docker_executor_runs_containers(script: Script, image: str) -> None:
    shown = script(
        EXPERIMENT
        + """
    executor = run.DockerExecutor(
        container_image=sys.argv[1], packager=run.Packager(), env_vars={"WHOM": "container"}
    )
    with run.Experiment("boxes", executor=executor) as experiment:
        experiment.add(run.Script(inline="echo hello $WHOM; sleep 1"), name="one", tail_logs=True)
        experiment.add(run.Script(inline="sleep 2; exit 3"), name="two")
        experiment.run(detach=False, tail_logs=True)
    states(experiment)
""",
        image,
    )
    assert states(shown) == {"one": "SUCCEEDED", "two": "FAILED"}
    assert "hello container" in shown


def test_nemo_schedulers_hide_no_other_scheduler(call: Call) -> None:
    done = call("torchx", "plugins", "-o", "json")
    assert done.returncode == 0, done.stderr
    schedulers = {row["name"] for row in json.loads(done.stdout)["schedulers"]}
    assert schedulers == EXECUTORS | OURS
    assert {"local_cwd", "local_docker", "slurm", "lsf"} <= schedulers
    # NeMo-Run's schedulers do not change the default scheduler.
    done = call("torchx", "run", "--", "utils.echo", "--msg", "hello")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("local_cwd://")


def test_runopts_lists_the_options_of_nemo_schedulers(call: Call) -> None:
    done = call("torchx", "runopts")
    heads = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    errors = {head.partition(":")[0]: head.partition(":")[2] for head in heads}
    assert set(errors) == EXECUTORS | OURS
    # Only NeMo-Run's extra for SkyPilot is not installed.
    assert {name for name, error in errors.items() if error} == {"skypilot", "skypilot_jobs"}
    assert "Skypilot is not installed" in errors["skypilot"]


def test_the_runner_of_nemo_passes_keywords_to_its_schedulers() -> None:
    from nemo_run.run.torchx_backend.runner import get_runner
    from nemo_run.run.torchx_backend.schedulers.local import PersistentLocalScheduler

    import torchx_runner

    with get_runner(experiment=None, cache_size="7") as runner:
        assert isinstance(runner, torchx_runner.Runner)
        assert runner._scheduler_params == {"experiment": None, "cache_size": "7"}
    with get_runner(experiment=None) as runner:
        scheduler = runner._scheduler("local_persistent")
        assert type(scheduler) is PersistentLocalScheduler
        assert set(runner.scheduler_backends()) == EXECUTORS | OURS
