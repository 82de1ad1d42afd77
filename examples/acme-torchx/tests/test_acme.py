"""The conformance tests of Acme's package, and tests of its priorities, workers and components."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torchx_specs import AppState
from torchx_testing.plugin_suite import PluginConformance
from torchx_testing.scheduler_suite import SchedulerConformance
from torchx_testing.tracker_suite import TrackerConformance

from acme_torchx import overrides
from acme_torchx.database import transaction
from acme_torchx.jobs import LOST_SECONDS, Job, JobTable, Task
from acme_torchx.scheduler import AcmeScheduler, create_scheduler
from acme_torchx.tracker import AcmeTracker, create


class TestDistribution(PluginConformance):
    distribution = "acme-torchx"


class TestScheduler(SchedulerConformance):
    scheduler_name = "acme"
    python = sys.executable
    pending_cfg = {"queue": "without-a-worker"}

    @pytest.fixture
    def scheduler(self, acme_home: Path) -> AcmeScheduler:
        return create_scheduler("conformance")


class TestTracker(TrackerConformance):
    @pytest.fixture
    def tracker(self, tmp_path: Path) -> AcmeTracker:
        return create(str(tmp_path / "jobs.db"))

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], AcmeTracker]:
        return lambda: create(str(tmp_path / "jobs.db"))


def job(job_id: str, priority: int = 0, cpus: float = 1) -> Job:
    return Job(job_id, "name", "default", priority, cpus, 0, [Task("main", 0, ["true"], {})])


def test_the_highest_priority_that_fits_starts_first(tmp_path: Path) -> None:
    table = JobTable(tmp_path)
    for one in (job("low"), job("large", 9, cpus=8), job("high", 5), job("later")):
        table.submit(one)
    claimed = [table.claim("w", "default", 2) for _ in range(4)]
    assert [one.id if one else None for one in claimed] == ["high", "low", "later", None]


def test_a_job_of_a_lost_worker_has_failed(tmp_path: Path) -> None:
    table = JobTable(tmp_path)
    table.submit(job("one"))
    table.claim("host-7", "default", 1)
    with transaction(table.path) as database:
        database.execute("UPDATE jobs SET reported = reported - ?", (LOST_SECONDS + 1,))
    found = AcmeScheduler("s", table).describe("one")
    assert found is not None
    assert found.state == AppState.FAILED
    assert found.msg == "worker host-7 has not reported for 30 seconds"
    # The state is final, even if the worker returns.
    assert table.report("host-7") == {"one"}
    table.finish("one", "SUCCEEDED", [0])
    assert AcmeScheduler("s", table).describe("one") == found


def test_a_job_that_was_cancelled_before_its_start_never_starts(tmp_path: Path) -> None:
    table = JobTable(tmp_path)
    table.submit(job("one"))
    table.cancel("one")
    assert table.claim("w", "default", 1) is None


def test_python_sets_the_site() -> None:
    [role] = overrides.python(c="pass", env={"A": "1"}).roles
    assert {"ACME_SITE": "berlin", "A": "1"}.items() <= role.env.items()
