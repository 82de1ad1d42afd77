"""Apps on LSF: refused submissions, apps that bkill ends, odd directories."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from lsf_jobs import app, jobs
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.errors import BatchError, RefusedError
from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_specs import AppState
from torchx_specs.schedulers import Stream

pytestmark = pytest.mark.usefixtures("lsf")


def states_of(folder: Path) -> list[object]:
    return [job["stat"] for job in jobs(folder)]


@pytest.mark.parametrize("by", ["us", "bkill"])
def test_cancelled_app(scheduler: LsfScheduler, lsf: Path, by: str) -> None:
    app_id = scheduler.submit(app("sleep 86400", count=2), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    if by == "us":
        scheduler.cancel(app_id)
    else:
        ids = [path.stem for path in lsf.glob("*.json")]
        subprocess.run(["bkill", *ids], check=True, capture_output=True)
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"lsf_queue": "nope"}, "No such queue"),
        ({"project": "nope"}, "nope is not a known project"),
        ({"extra": ["-R", "rusage[mem=much]"]}, "Bad resource requirement"),
        ({"extra": ["-no-such-option"]}, "Illegal option"),
    ],
)
def test_a_refused_value_leaves_no_jobs_and_files(
    scheduler: LsfScheduler,
    lsf: Path,
    monkeypatch: pytest.MonkeyPatch,
    cfg: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setenv("LSF_DOUBLE_PROJECTS", "default genomics")
    with pytest.raises(RefusedError, match=message) as caught:
        scheduler.submit(app("true", count=2), cfg)
    assert caught.value.exit_code == 2
    assert str(caught.value).count(message) == 1
    assert "\n" not in str(caught.value)
    assert states_of(lsf) == []
    assert scheduler.list() == []
    assert list(Path().iterdir()) == []


def test_jobs_are_killed_if_lsf_refuses_a_later_one(
    scheduler: LsfScheduler, lsf: Path, tmp_path: Path
) -> None:
    """The second bsub fails, so the first job is killed."""
    real = tmp_path / "bin" / "bsub"
    text = real.read_text()
    real.write_text(
        text.replace(
            "exec ",
            f'[ "$1" != -V ] && [ -e "{tmp_path}/once" ] && {{ echo full >&2; exit 255; }}\n'
            f'[ "$1" = -V ] || touch "{tmp_path}/once"\nexec ',
        )
    )
    with pytest.raises(BatchError, match="full"):
        scheduler.submit(app("sleep 86400", count=2), {})
    wait_until(lambda: states_of(lsf) == ["EXIT"])


def test_jobdir_with_special_characters(scheduler: LsfScheduler, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s $HOME `x` "y"'
    app_id = scheduler.submit(app("pwd"), {"jobdir": str(folder)})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main", streams=Stream.STDOUT)) == [f"{folder}\n"]
