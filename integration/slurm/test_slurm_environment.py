"""The environment of a user's profile, options of sbatch, and addresses, on a real Slurm."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from slurm_jobs import Cluster, app, every_release, wait_for, with_and_without_accounting

from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppState
from torchx_specs.errors import RequestError

#: Values with which the commands would list or cancel no job.
FILTERS = {
    **{f"SQUEUE_{name}": "nothing" for name in ("ACCOUNT", "LICENSES", "NAMES", "QOS")},
    "SQUEUE_PARTITION": "closed",
    "SQUEUE_USERS": "nobody",
    "SQUEUE_STATES": "PENDING",
    "SQUEUE_FORMAT": "%i",
    "SQUEUE_FORMAT2": "jobid",
    "SQUEUE_ARRAY": "1",
    "SCANCEL_STATE": "PENDING",
    "SCANCEL_USER": "nobody",
    "SCANCEL_PARTITION": "closed",
    "SACCT_FORMAT": "JobID",
    "SINFO_PARTITION": "closed",
    "SINFO_FORMAT": "%a",
}


def job(app_id: str) -> dict[str, str]:
    shown = subprocess.run(
        ["scontrol", "show", "job", "-o", app_id], capture_output=True, text=True, check=True
    )
    return dict(re.findall(r"(\S+?)=(\S*)", shown.stdout.partition("\n")[0]))


@pytest.mark.gate
@with_and_without_accounting
def test_filters_of_a_profile_hide_no_job_and_keep_none_alive(
    scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FILTERS.items():
        monkeypatch.setenv(name, value)
    app_id = scheduler.submit(app("sleep 86400"), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    listed = {each.app_id: each.state for each in scheduler.list()}
    assert listed[app_id] == AppState.RUNNING
    scheduler.cancel(app_id)
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED


@pytest.mark.gate
@every_release
def test_given_options_win_over_the_profile_and_others_keep_it(
    scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = {
        "PARTITION": "closed",
        "TIMELIMIT": "1",
        "MEM_PER_CPU": "9999999",
        "JOB_NAME": "other",
        "ARRAY_INX": "0-3",
        "NO_REQUEUE": "1",
        "WAIT": "1",
        "CONSTRAINT": "small",
    }
    for name, value in profile.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    app_id = scheduler.submit(app("sleep 86400"), {"partition": "two", "time": "5"})
    found = job(app_id)
    assert (found["Partition"], found["TimeLimit"]) == ("two", "00:05:00")
    assert (found["JobName"], found["MinMemoryNode"], found["Requeue"]) == ("app", "100M", "1")
    assert "ArrayJobId" not in found
    assert found["Features"] == "small"


def test_an_option_of_the_user_replaces_a_derived_one_that_it_excludes(
    scheduler: SlurmScheduler,
) -> None:
    app_id = scheduler.submit(app("true"), {"extra": ["mem-per-cpu=70M"]})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


@pytest.mark.parametrize("cluster", ["accounting"], indirect=True)
@pytest.mark.parametrize(
    "cfg",
    [
        {"partition": "nope"},
        {"account": "nope"},
        {"qos": "nope"},
        {"reservation": "nope"},
        {"constraint": "nope"},
        {"extra": ["nope=1"]},
        {"extra": ["licenses=nope:1"]},
        {"extra": ["mem-per-cpu=lots"]},
        {"time": "99-00:00:00", "partition": "two", "extra": ["no-such-flag"]},
    ],
    ids=str,
)
def test_refused_options_are_errors_of_the_request(
    scheduler: SlurmScheduler, cfg: dict[str, object]
) -> None:
    with pytest.raises(RequestError) as caught:
        scheduler.submit(app("true"), cfg)
    assert caught.value.exit_code == 2


def address(scheduler: SlurmScheduler, **cfg: object) -> str:
    app_id = scheduler.submit(app("echo $TORCHX_RANK0_HOST", num_replicas=2), cfg)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    one, other = (list(scheduler.log_iter(app_id, "main", k)) for k in range(2))
    assert one == other
    return one[0].strip()


class TestAddress:
    """The nodes of the cluster have the address 127.0.0.1, which other machines cannot reach."""

    def test_host_of_replica_0_is_no_loopback_address(self, scheduler: SlurmScheduler) -> None:
        shown = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True)
        assert address(scheduler) in shown.stdout.split()

    def test_option_selects_an_interface_or_a_network(self, scheduler: SlurmScheduler) -> None:
        assert address(scheduler, interface="lo") == "127.0.0.1"
        assert address(scheduler, interface="127.0.0.0/8") == "127.0.0.1"
        app_id = scheduler.submit(app("true"), {"interface": "nope0"})
        assert wait_for(scheduler, app_id).state == AppState.FAILED
        log = Path(f"slurm-{app_id}.out").read_text()
        assert "has no address of nope0, which is the option interface" in log


def test_setup_runs_on_each_node_on_request(scheduler: SlurmScheduler, work: Path) -> None:
    cfg = {"setup": ["export TEXT=$SLURMD_NODENAME; touch on-$TEXT"], "setup_replicas": True}
    app_id = scheduler.submit(app('[ "$TEXT" = "$SLURMD_NODENAME" ]', num_replicas=2), cfg)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert len(list(work.glob("on-n*"))) == 2
    app_id = scheduler.submit(app("true"), {**cfg, "setup": ["false"]})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert "setup failed with exit code 1 at: false" in found.msg


@pytest.mark.parametrize("cluster", ["accounting"], indirect=True)
def test_handle_of_a_cluster_has_no_character_of_shells(
    scheduler: SlurmScheduler, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_CLUSTERS", "torchx")
    app_id = scheduler.submit(app("sleep 86400"), {})
    number, _, name = app_id.partition("@")
    assert (number.isdigit(), name) == (True, "torchx")
    wait_for(scheduler, app_id, AppState.RUNNING)
    earlier = f"{number};{name}"  # the form of earlier releases
    found = scheduler.describe(earlier)
    assert found is not None
    assert found.state == AppState.RUNNING
    assert found.roles_statuses[0].replicas[0].node
    scheduler.cancel(earlier)
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED
