"""How many requests travel over a connection, which a round trip of 150 ms would make slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_proxy import Proxy

from torchx_host_ssh.channel import Channel
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, Role, Workspace

# Half of a round trip, in seconds.
DELAY = 0.075


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return the requests that this process sends from now on."""
    found: list[tuple[Any, ...]] = []
    request = Channel.request

    def record(self: Channel, *arguments: Any, **options: Any) -> Any:
        found.append(arguments)
        return request(self, *arguments, **options)

    monkeypatch.setattr(Channel, "request", record)
    return found


@pytest.fixture
def scheduler(
    work: Path, proxy: Callable[..., Proxy], alias: Callable[..., str]
) -> Iterator[SlurmScheduler]:
    """Yield a scheduler whose cluster is 150 ms away."""
    scheduler = InstalledSchedulers()[f"slurm@{alias(Port=proxy(DELAY).port)}"]("test")
    assert isinstance(scheduler, SlurmScheduler)
    scheduler._host.user()  # connects
    yield scheduler
    scheduler.system.cancel([app.app_id for app in scheduler.list()])
    scheduler.close()


def submit(scheduler: SlurmScheduler, folder: Path) -> str:
    role = Role("sh", image="", entrypoint="true", workspace=Workspace({str(folder): ""}))
    return scheduler.submit(AppDef("app", [role]), {"extra": ["hold"]})


def sent_files(requests: list[tuple[Any, ...]]) -> list[bytes]:
    """Return the contents of the files of workspaces that were sent."""
    batches = (one[1] for one in requests if one[0] == "batch")
    return [each[1][3] for batch in batches for each in batch if each[0] == "put_part"]


@pytest.mark.gate
def test_a_submission_with_an_unchanged_workspace_needs_two_round_trips(
    scheduler: SlurmScheduler, work: Path, requests: list[tuple[Any, ...]]
) -> None:
    (work / "program.py").write_text("# program")
    submit(scheduler, work)
    requests.clear()
    submit(scheduler, work)
    assert [one[0] for one in requests] == ["find_tree", "batch"]


def test_one_changed_file_of_2000_is_sent_alone(
    scheduler: SlurmScheduler, work: Path, requests: list[tuple[Any, ...]]
) -> None:
    for k in range(2000):
        (work / f"{k}.py").write_text(f"print({k})\n")
    submit(scheduler, work)
    assert len(sent_files(requests)) == 2000
    (work / "1000.py").write_text("print('changed')\n")
    requests.clear()
    submit(scheduler, work)
    assert [one[0] for one in requests] == ["find_tree", "make_tree", "batch", "batch"]
    assert sent_files(requests) == [b"print('changed')\n"]


@pytest.mark.gate
def test_the_status_of_many_jobs_needs_one_round_trip(
    scheduler: SlurmScheduler, work: Path, requests: list[tuple[Any, ...]]
) -> None:
    scheduler.list()  # the first query finds out whether the cluster has accounting
    app_ids = [submit(scheduler, work) for _ in range(5)]
    entries = [entry for app_id in app_ids if (entry := scheduler._entry(app_id))]
    requests.clear()
    assert len(scheduler._describe_all(entries, pending_reasons=False)) == 5
    assert [one[0] for one in requests] == ["batch"]
    requests.clear()
    assert len(scheduler.list()) >= 5
    assert len(requests) <= 2
