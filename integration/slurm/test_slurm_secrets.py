"""Secrets on a real Slurm: the node reads them, and neither Slurm nor a record contains them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from slurm_jobs import ACCOUNTING, PLAIN, RELEASES, Cluster, app, wait_for

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppState, secret

VALUE = "p4ss w'ord $x"


@pytest.fixture
def secrets(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of secrets, which contains one secret."""
    folder = tmp_path / "torchx home" / "secrets"
    (folder / "hf").mkdir(parents=True, mode=0o700)
    (folder / "hf" / "token").write_text(VALUE + "\n")
    (folder / "hf" / "token").chmod(0o600)
    monkeypatch.setenv("TORCHX_HOME", str(folder.parent))
    return folder


def files_with(value: str, *folders: Path) -> list[str]:
    found = subprocess.run(
        ["grep", "-rlF", value, *map(str, folders)], capture_output=True, text=True, check=False
    )
    return found.stdout.splitlines()


@pytest.mark.parametrize("cluster", [PLAIN, ACCOUNTING, *RELEASES], indirect=True)
def test_the_program_receives_the_value_and_slurm_does_not(
    cluster: Cluster,
    scheduler: SlurmScheduler,
    work: Path,
    secrets: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Slurm stores the environment of sbatch.
    monkeypatch.setenv("TORCHX_SECRET_HF__TOKEN", "p4ss from a variable")
    # The code must not contain the value "p4ss", because Slurm stores the script with the code.
    code = (
        'printf %s "$HF_TOKEN" | sha256sum; env | grep -c ^TORCHX_SECRET_;'
        " cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' '\\n' | grep -c 'p4s[s]';"
        " touch running; until [ -e stop ]; do sleep 0.1; done"
    )
    job = app(code, num_replicas=2, env={"HF_TOKEN": secret("hf", "token")})
    info = scheduler.submit_dryrun(job, {})
    assert "tx_secret HF_TOKEN hf token" in repr(info)
    app_id = scheduler.schedule(info)
    wait_for(scheduler, app_id, AppState.RUNNING, until=lambda _: (work / "running").exists())
    shown = ""
    for command in (["scontrol", "-dd", "show", "job", app_id], ["squeue", "-O", "ALL"]):
        shown += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    script = ["scontrol", "write", "batch_script", app_id, "-"]
    shown += subprocess.run(script, capture_output=True, text=True, check=True).stdout
    assert "tx_secret HF_TOKEN hf token" in shown
    stored = files_with("p4ss", cluster.folder, work)
    (work / "stop").touch()
    description = wait_for(scheduler, app_id)
    assert description.state == AppState.SUCCEEDED, description
    assert "p4ss" not in shown + repr(description) + repr(info)
    assert stored == []
    digest = hashlib.sha256(VALUE.encode()).hexdigest()
    for k in range(2):
        assert list(scheduler.log_iter(app_id, "main", k)) == [f"{digest}  -\n", "0\n", "0\n"]


def test_a_task_of_an_array_whose_first_app_has_no_secret_receives_its_own(
    scheduler: SlurmScheduler, secrets: Path
) -> None:
    code = 'printf %s "${HF_TOKEN-none}" | sha256sum'
    envs = [{}, {"HF_TOKEN": secret("hf", "token")}]
    infos = [scheduler.submit_dryrun(app(code, env=dict(env)), {}) for env in envs]
    for app_id, value in zip(scheduler.app_arrays.submit(infos), ("none", VALUE), strict=True):
        assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
        digest = hashlib.sha256(value.encode()).hexdigest()
        assert list(scheduler.log_iter(app_id, "main")) == [f"{digest}  -\n"]
