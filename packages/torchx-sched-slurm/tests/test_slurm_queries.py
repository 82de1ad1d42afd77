"""Parsers of squeue and sacct.

``recorded/`` has outputs of Slurm 22.05.8; ``written/`` has outputs of other versions, made from
the documentation of these versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from torchx_kit.batch.errors import BatchError
from torchx_sched_slurm import jobs as queries
from torchx_sched_slurm.scheduler import (
    create_scheduler,
)

HERE = Path(__file__).parent
SQUEUE = (HERE / "recorded" / "squeue-22.05.8.txt").read_text()


def jobs(text: str, columns: Mapping[str, str] = queries.SQUEUE) -> dict[str, queries.SlurmJob]:
    return {job.job_id: job for job in queries.parse_jobs(text, columns)}


class TestParsers:
    def test_squeue(self) -> None:
        found = jobs(SQUEUE)
        assert list(found) == ["9", "1", "2", "3", "6", "8", "10", "7", "4"]
        assert found["1"].mark == "bcdfghjklmnp"
        assert (found["2"].command, found["2"].mark) == ("", "")
        parts = [(part.job_id, part.name) for part in found["4"].parts]
        assert parts == [("4", "trainer-0"), ("5", "reader-0")]

    def test_times_have_no_zone(self) -> None:
        good, pending = jobs(SQUEUE)["1"], jobs(SQUEUE)["6"]
        times = (good.submitted, good.started, good.ended)
        assert [when.timestamp() for when in times if when] == [1795403322, 1795403323, 1795403324]
        assert (pending.started, pending.ended) == (None, None)

    @pytest.mark.parametrize(
        ("states", "state"),
        [
            (["COMPLETED", "PENDING", "RUNNING"], "RUNNING"),
            (["COMPLETED", "FAILED", "PENDING"], "PENDING"),
            (["COMPLETED", "FAILED"], "FAILED"),
            (["COMPLETED", "COMPLETED"], "COMPLETED"),
        ],
    )
    def test_state_of_an_array(self, states: list[str], state: str) -> None:
        ids = ["6_[3%2]", *(f"6_{k}" for k in range(1, len(states)))]
        lines = [
            "\x1f".join([job_id, name, "", "", "", "", "/w", "array", "(null)", ""])
            for job_id, name in zip(ids, states, strict=True)
        ]
        found = jobs("\n".join(lines))
        assert (set(found), found["6"].state) == ({"6", *ids}, state)

    def test_sacct(self) -> None:
        text = (HERE / "recorded" / "sacct-22.05.8.txt").read_text()
        found = jobs(text, queries.SACCT)
        assert found["1"].mark == "bcdfghjklmnp"
        assert (found["2"].mark, found["2"].exit_code) == ("", 3)

    def test_text_that_is_no_list_is_an_error(self) -> None:
        with pytest.raises(BatchError, match="printed no list of jobs, but 'Welcome!'"):
            jobs("Welcome!")
        assert jobs("\n") == {}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-2],m", ["n1", "n2", "m"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
    ],
)
def test_lists_of_nodes_are_expanded(text: str, nodes: list[str]) -> None:
    assert queries.expand_nodes(text) == nodes


@pytest.mark.parametrize("app_id", ["", "x", "1;", "1;a b", "../1", "1\n", "-1", "1_", "1+0"])
def test_invalid_job_id_is_rejected(app_id: str) -> None:
    assert queries.parse_job_id(app_id) is None


class TestAccounting:
    def test_missing_accounting_is_queried_once(self, command_double) -> None:  # type: ignore[no-untyped-def]
        unknown = HERE / "recorded" / "squeue-unknown-22.05.8.err"
        command_double("squeue", f"cat '{unknown}' >&2; exit 1")
        calls = command_double("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
        scheduler = create_scheduler("x")
        assert scheduler.describe("1") is None
        assert scheduler.describe("2") is None
        assert len(calls.read_text("utf-8").splitlines()) == 1
