"""Secrets on the double of LSF: the host reads them, and neither LSF nor a record contains them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from lsf_jobs import app
from waiting import wait_for

from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppState, secret

VALUE = "p4ss w'ord $x"


@pytest.fixture
def secrets(lsf: Path, tmp_path: Path) -> Path:
    """Return the directory of secrets, which contains one secret."""
    folder = tmp_path / "torchx" / "secrets"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "hf").write_text(VALUE + "\n")
    (folder / "hf").chmod(0o600)
    return folder


def test_the_program_receives_the_value_and_lsf_does_not(
    scheduler: LsfScheduler,
    lsf: Path,
    secrets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # LSF stores the environment of bsub.
    monkeypatch.setenv("TORCHX_SECRET_HF", "p4ss from a variable")
    code = 'printf %s "$HF_TOKEN" | sha256sum; env | grep -c ^TORCHX_SECRET_; env | grep -c p4s[s]'
    job = app(code, count=2)
    job.roles[0].env["HF_TOKEN"] = secret("hf")
    info = scheduler.submit_dryrun(job, {})
    assert "tx_secret HF_TOKEN hf" in repr(info)
    app_id = scheduler.schedule(info)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED, found
    digest = hashlib.sha256(VALUE.encode()).hexdigest()
    for k in range(2):
        assert list(scheduler.log_iter(app_id, "main", k)) == [f"{digest}  -\n", "0\n", "1\n"]
    shown = subprocess.run(["bjobs", "-a", "-l"], capture_output=True, text=True).stdout
    assert "p4ss" not in shown + repr(found) + repr(info)
    (secrets / "hf").unlink()
    stored = subprocess.run(
        ["grep", "-rl", "p4ss", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert stored.stdout == ""
