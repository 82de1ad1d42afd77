"""Tests of the checks for ``torchx doctor``, with doubles of Slurm's commands."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_slurm.checks import check_cluster, check_configuration

CONFIG = """cat <<'END'
AccountingStorageType   = {storage}
MinJobAge               = 300 sec
ProctrackType           = {track}
END"""


def commands(double: Any, sinfo: str, config: str = "true", sacct: str = "true") -> None:
    for name in ("sbatch", "squeue", "scancel"):
        double(name, "exit 9")
    double("sinfo", f'[ "$1" = --version ] && echo "slurm 23.11.4" && exit 0\n{sinfo}')
    double("scontrol", config)
    double("sacct", sacct)


def results(check: Any, **cfg: Any) -> list[tuple[str, str]]:
    return [(result.level, result.message) for result in check(cfg)]


def test_without_slurm_one_error_says_so(command_double: Any) -> None:
    [result] = check_cluster({})
    assert result.level == "error"
    assert result.message.startswith("Slurm is not installed: sbatch, squeue, scancel, scontrol,")
    assert "login node" in result.remedy
    assert list(check_configuration({})) == []


def test_a_missing_command_is_named(command_double: Any) -> None:
    commands(command_double, "echo 'main|up|2|idle'")
    (command_double("gone", "").parent / "scancel").unlink()
    assert results(check_cluster) == [("error", "commands of Slurm are not on PATH: scancel")]


def test_partitions_and_their_usable_nodes(command_double: Any) -> None:
    commands(
        command_double,
        "printf 'main|up|2|idle\\nmain|up|1|down*\\ngpu|up|4|drained\\nold|inact|3|idle\\n'",
    )
    assert results(check_cluster) == [
        ("ok", "slurm 23.11.4"),
        (
            "ok",
            "partitions: main (2 usable nodes), gpu (0 usable nodes), old (0 usable nodes)",
        ),
    ]
    assert results(check_cluster, partition="gpu")[1] == (
        "warning",
        "no node of partition gpu can run jobs now",
    )
    level, message = results(check_cluster, partition="gpux")[1]
    assert (level, message) == (
        "error",
        "there is no partition 'gpux'; partitions: gpu, main, old",
    )


def test_one_of_several_partitions_is_missing(command_double: Any) -> None:
    commands(command_double, "printf 'main|up|2|idle\\ngpu|up|4|drained\\n'")
    assert results(check_cluster, partition="main,gpux")[1] == (
        "error",
        "there is no partition 'gpux'; partitions: gpu, main",
    )
    assert results(check_cluster, partition="gpu,main")[1][0] == "ok"


def test_a_controller_that_is_down_is_an_error(command_double: Any) -> None:
    commands(
        command_double,
        "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2;"
        " exit 1",
        "echo 'Slurmctld(primary) at n0 is DOWN'",
    )
    rows = list(check_cluster({}))
    assert [row.level for row in rows] == ["ok", "error"]
    assert "Slurmctld(primary) at n0 is DOWN" in rows[1].message
    assert "scontrol ping" in rows[1].remedy


@pytest.mark.parametrize(
    ("storage", "track", "sacct", "expected"),
    [
        (
            "accounting_storage/slurmdbd",
            "proctrack/cgroup",
            "true",
            [("ok", "Slurm tracks the processes of a job by cgroup"), ("ok", "accounting answers")],
        ),
        (
            "accounting_storage/slurmdbd",
            "proctrack/cgroup",
            "echo 'sacct: error: slurm_persist_conn_open: failed' >&2; exit 1",
            [
                ("ok", "Slurm tracks the processes of a job by cgroup"),
                ("warning", "sacct: slurm_persist_conn_open: failed"),
            ],
        ),
        (
            "(null)",
            "proctrack/linuxproc",
            "exit 9",
            [
                (
                    "warning",
                    (
                        "Slurm tracks the processes of a job by linuxproc, so a process that leaves"
                        " its process group survives the job"
                    ),
                ),
                (
                    "warning",
                    (
                        "accounting is off: only TorchX's own records tell how an old job ended"
                        " (Slurm forgets ended jobs after 300 sec)"
                    ),
                ),
            ],
        ),
    ],
)
def test_accounting_and_cgroups(
    command_double: Any, storage: str, track: str, sacct: str, expected: list[tuple[str, str]]
) -> None:
    commands(command_double, "true", CONFIG.format(storage=storage, track=track), sacct)
    assert results(check_configuration) == expected
