"""Tests of arrays without Slurm: which apps become one, shared limits, commands of a task."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from slurm_requests import role

from torchx_kit.batch.arrays import can_be_array
from torchx_kit.batch.entries import Index, RoleEntry
from torchx_kit.jobs.arrays import ParallelLimit, task_line
from torchx_sched_slurm.job_files.records import SlurmEntry
from torchx_sched_slurm.jobs import parse_job_id
from torchx_sched_slurm.request import SlurmBatchRequest, SlurmReplicaRequest, array_options
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import CapacityError


def request(scheduler: SlurmScheduler, *roles: Role, **cfg: object) -> SlurmBatchRequest:
    return scheduler._request(scheduler.submit_dryrun(AppDef("app", list(roles)), cfg))


class TestWhichAppsBecomeAnArray:
    def test_those_that_differ_in_arguments_and_variables(self, scheduler: SlurmScheduler) -> None:
        requests = [request(scheduler, role(args=[i], env={"A": i})) for i in "ab"]
        assert can_be_array(requests)
        assert not can_be_array(requests[:1])
        assert list(scheduler.app_arrays.submit([])) == []

    @pytest.mark.parametrize(
        "other", [role(num_replicas=3), role(entrypoint="other"), role(max_retries=4)]
    )
    def test_not_those_that_differ_otherwise(self, scheduler: SlurmScheduler, other: Role) -> None:
        assert not can_be_array([request(scheduler, role()), request(scheduler, other)])

    def test_not_those_with_a_directory_of_their_own(self, scheduler: SlurmScheduler) -> None:
        requests = [request(scheduler, role(), job_dir="/jobs/${app_id}") for _ in range(2)]
        assert not can_be_array(requests)


def test_the_limit_holds_for_apps_that_do_not_become_an_array(
    scheduler: SlurmScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    infos = [
        scheduler.submit_dryrun(AppDef("app", [role(entrypoint=f"e{i}")]), {}) for i in range(3)
    ]
    monkeypatch.setattr(scheduler, "schedule", lambda info: info.request.cmd[0])
    submitted = scheduler.app_arrays.submit(infos, max_parallel=2)
    assert len([next(submitted) for _ in range(2)]) == 2
    with pytest.raises(CapacityError, match="1 apps would exceed max_parallel=2"):
        next(submitted)
    assert len(list(scheduler.app_arrays.submit(infos))) == 3


def options(arrays_: list[int], max_parallel: int | None, dependency: str = "") -> list[str]:
    limit = ParallelLimit(len(arrays_), max_parallel)
    found = []
    for number, tasks in enumerate(arrays_):
        found.append(" ".join(array_options(tasks, limit.share, limit.previous, dependency)))
        limit.add(str(number))
    return found


@pytest.mark.parametrize(
    ("sizes", "max_parallel", "expected"),
    [
        ([3], None, ["--array=0-2"]),
        ([3, 3], None, ["--array=0-2", "--array=0-2"]),
        ([3], 8, ["--array=0-2%8"]),
        ([3, 3, 2], 8, ["--array=0-2%3", "--array=0-2%3", "--array=0-1%2"]),
        (
            [3, 3, 2],
            2,
            ["--array=0-2%1", "--array=0-2%1", "--array=0-1%1 --dependency=afterany:0"],
        ),
    ],
)
def test_arrays_share_the_limit(
    sizes: list[int], max_parallel: int | None, expected: list[str]
) -> None:
    assert options(sizes, max_parallel) == expected


@pytest.mark.parametrize(
    ("dependency", "expected"),
    [
        ("afterok:7", "afterok:7,afterany:0"),
        ("singleton", "singleton,afterany:0"),
    ],
)
def test_arrays_of_a_share_keep_the_dependency_of_the_user(dependency: str, expected: str) -> None:
    first, second = options([3, 3], 1, dependency)
    assert "--dependency" not in first  # the directive of the script has the dependency
    assert second == f"--array=0-2%1 --dependency={expected}"


def test_an_array_with_alternatives_is_submitted_after_the_end_of_an_earlier_array() -> None:
    alternatives = "afterok:7?afterok:8"
    assert options([3, 3], 2, alternatives) == ["--array=0-2%1", "--array=0-2%1"]
    with pytest.raises(CapacityError, match=r"array 10, .* dependency='afterok:7\?afterok:8'"):
        array_options(3, 1, "10", alternatives)


def test_the_commands_of_a_task_are_one_line_and_arrive_unchanged(tmp_path: Path) -> None:
    values = [
        "",
        " ",
        "a b",
        "it's",
        '"',
        "$(exit 7)",
        "`x`",
        "a\nb",
        "\\n",
        "é",
        "#",
        "; }",
        "\udcff",
    ]
    printed = ["-c", 'printf "%s\\0" "$@" "$V"', "-", *values]
    env = {"V": "a\nb'$"}
    lines = SlurmReplicaRequest("main", "/bin/bash", printed, {}, {}, env).command_lines()
    line = task_line([lines, lines])
    assert "\n" not in line
    path = tmp_path / "script"
    path.write_text(f"{line}\n(role_1 7 3)\n")
    done = subprocess.run(["/bin/bash", str(path)], capture_output=True, check=True)
    arrived = [word.decode("utf-8", "surrogateescape") for word in done.stdout.split(b"\0")[:-1]]
    assert arrived == [*values, "a\nb'$"]


def test_ids_of_tasks() -> None:
    assert parse_job_id("12_3@main") == parse_job_id("12_3;main") == "12_3@main"
    assert SlurmEntry.split_id("12_3@main") == ("12@main", 3)
    assert SlurmEntry("12@main", "", "", "").element_id(3) == "12_3@main"
    assert parse_job_id("12_") is None
    assert parse_job_id("12_03") is None
    assert parse_job_id("12_[1-3]") is None


def test_tasks_of_an_array_are_cancelled_by_one_command(
    scheduler: SlurmScheduler, command_double: Callable[..., Path], tmp_path: Path
) -> None:
    calls = command_double("scancel", "exit 0")
    index = Index("slurm", SlurmEntry)
    roles = [RoleEntry("main", "main", 1, ["12@main"])]
    folder = str(tmp_path)
    index.put(SlurmEntry("12@main", "app", folder, folder, roles, complete=True, names=["app"] * 9))
    for numbers in ("0123", "37"):
        scheduler.app_arrays.cancel(f"12_{number};main" for number in numbers)
    assert calls.read_text().splitlines() == [
        "--clusters main 12_[0-3]",
        "--clusters main 12_[3,7]",
    ]
    tasks = {number: index.get(f"12_{number}@main") for number in (3, 4)}
    assert [entry and entry.cancelled for entry in tasks.values()] == [True, False]
    # Slurm has forgotten the task, which was killed before it could report its end.
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "started").write_text("0 12_3 5\n")
    command_double("squeue", "exit 0")
    found = scheduler.describe("12_3@main")
    assert found is not None
    assert (found.state, found.msg) == (AppState.CANCELLED, "cancelled")
    scheduler.app_arrays.cancel(["99_0"])
    assert index.get("99") is None


@pytest.mark.parametrize(
    ("cfg", "app_id", "outcome", "expected"),
    [
        ({}, "12", "ok", "afterok:12"),
        ({}, "12_3", "failed", "afternotok:12_3"),
        ({"dependency": "singleton"}, "12", "any", "singleton,afterany:12"),
        ({"dependency": "afterok:1?afterok:2"}, "12", "any", None),
        ({}, "12;other", "ok", None),
        ({}, "no-job", "ok", None),
    ],
)
def test_dependencies_of_other_apps(
    scheduler: SlurmScheduler, cfg: dict[str, str], app_id: str, outcome: str, expected: str | None
) -> None:
    found = scheduler.with_dependency(cfg, app_id, outcome)
    assert found == (None if expected is None else {"dependency": expected})
