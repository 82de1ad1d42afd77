"""Jobs that reach their time limit of one minute; the fixture ``timed`` has started them."""

from __future__ import annotations

import pytest
from slurm_jobs import TimedJobs, wait_for

from torchx_kit.hosts.local import LocalHost
from torchx_sched_slurm.describe import SlurmApp
from torchx_sched_slurm.job_files.records import SlurmRecord
from torchx_sched_slurm.scheduler import SlurmScheduler, create_scheduler
from torchx_specs import AppState
from torchx_specs.schedulers import Stream


@pytest.fixture
def scheduler(timed: TimedJobs, monkeypatch: pytest.MonkeyPatch) -> SlurmScheduler:
    for name, value in timed.variables.items():
        monkeypatch.setenv(name, value)
    return create_scheduler("test")


def test_signal_is_sent_before_the_limit(scheduler: SlurmScheduler, timed: TimedJobs) -> None:
    assert wait_for(scheduler, timed.signalled).state == AppState.SUCCEEDED
    out = list(scheduler.log_iter(timed.signalled, "main", streams=Stream.STDOUT))
    assert out == ["signalled\n"]


def test_limit_is_the_reason(scheduler: SlurmScheduler, timed: TimedJobs) -> None:
    found = wait_for(scheduler, timed.killed)
    assert found.state == AppState.FAILED
    assert "TIMEOUT: time limit reached" in found.msg


def test_job_records_the_limit_as_its_reason(scheduler: SlurmScheduler, timed: TimedJobs) -> None:
    wait_for(scheduler, timed.killed)
    entry = scheduler._index.get(timed.killed)
    assert entry is not None
    entry.final = None  # as if the job had not been queried while Slurm knew it
    record = SlurmRecord(LocalHost(), entry.record)
    state, reason = SlurmApp(scheduler.system, entry, {}, record).state()
    assert (state, reason.partition(":")[0]) == (AppState.FAILED, "TIMEOUT")
