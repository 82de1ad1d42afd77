"""Use a Slurm cluster that is 150 ms away over SSH: ssh.py WHAT COUNT.

WHAT selects the printed figure:

- ``submit``: the round trips of a submission with an unchanged workspace of ten files
- ``files``: the files that are sent for a workspace of COUNT files of which one has changed
- ``status``: the round trips of the status of COUNT jobs
- ``submit-time``, ``status-time``: the same in seconds
- ``line``: how long a line of a followed log takes, the median of COUNT lines, in seconds
- ``hosts``: how long the jobs of COUNT hosts take to list, divided by the time of one host
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

from ssh_site import Site, site

from torchx_host_ssh.channel import Channel
from torchx_kit.hosts.lookup import find_host
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_runner.submissions.all_schedulers import list_all
from torchx_specs import AppDef, Role, Workspace

what, count = sys.argv[1], int(sys.argv[2])
requests: list[tuple[Any, ...]] = []
request = Channel.request


def record(self: Channel, *arguments: Any, **options: Any) -> Any:
    requests.append(arguments)
    return request(self, *arguments, **options)


def submit(scheduler: Any, folder: Path) -> str:
    role = Role("sh", image="", entrypoint="true", workspace=Workspace({str(folder): ""}))
    return str(scheduler.submit(AppDef("app", [role]), {"extra": ["hold"]}))


def line_seconds(scheduler: Any) -> float:
    """Return how long a line of a followed log takes, in seconds; all clocks are this machine's."""
    code = f"import time\nfor k in range({count}): time.sleep(0.2); print(time.time(), flush=True)"
    role = Role("sh", image="", entrypoint="python3", args=["-c", code])
    app_id = scheduler.submit(AppDef("app", [role]), {})
    lines = scheduler.log_iter(app_id, "sh", should_tail=True)
    return statistics.median(time.time() - float(line) for line in lines)


def hosts_ratio(place: Site) -> float:
    """Return the time to list several hosts, divided by the time of the slowest of three alone."""
    names = [f"slurm@login{k}" for k in range(count)]

    def list_one(name: str) -> list[Any]:
        return list(InstalledSchedulers()[name]("bench").list())

    def seconds(chosen: list[str]) -> float:
        begun = time.monotonic()
        listed = list_all(chosen, list_one, 60.0)
        whole = time.monotonic() - begun
        assert not listed.errors, listed.errors
        for name in chosen:
            disconnect(name)
        return whole

    for name in names:
        place.add_machine(name.partition("@")[2])
    slowest = max(seconds([name]) for name in names[:3])
    return round(seconds(names) / slowest, 2)


def disconnect(name: str) -> None:
    host: Any = find_host(name.partition("@")[2])
    host.close()
    host.ssh.disconnect()


def figure(place: Site) -> float:
    """Return the figure that ``what`` selects."""
    if what == "hosts":
        return hosts_ratio(place)
    scheduler: Any = InstalledSchedulers()["slurm@bash"]("bench")
    Channel.request = record  # type: ignore[method-assign]
    if what == "line":
        return line_seconds(scheduler)
    kind, _, is_time = what.partition("-")
    for k in range(count if kind == "files" else 10):
        (place.laptop / f"{k}.py").write_text(f"print({k})\n")
    app_ids = [submit(scheduler, place.laptop) for _ in range(count if kind == "status" else 1)]
    scheduler.list()  # the first query finds out whether the cluster has accounting
    if kind == "files":
        (place.laptop / "1.py").write_text("print('changed')\n")
    entries = [scheduler._entry(app_id) for app_id in app_ids]
    requests.clear()
    begun = time.monotonic()
    if kind == "status":
        assert len(scheduler._describe_all(entries, pending_reasons=False)) == count
    else:
        submit(scheduler, place.laptop)
    seconds = time.monotonic() - begun
    if kind == "files":
        batches = [one[1] for one in requests if one[0] == "batch"]
        return sum(each[0] == "put_part" for batch in batches for each in batch)
    return seconds if is_time else len(requests)


with site(accounting=what == "status-time") as place:
    found = figure(place)
    disconnect("slurm@bash")
print({"seconds": found})
