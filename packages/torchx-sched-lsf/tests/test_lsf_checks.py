"""Tests of the checks for ``torchx doctor``, with doubles of LSF's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchx_sched_lsf.checks import check_cluster

# The outputs are as in IBM's reference of lsid and bqueues.
LSID = """cat <<'END'
IBM Spectrum LSF 10.1.0.14, Jul 05 2023
Copyright International Business Machines Corp. 1992, 2016.

My cluster name is cluster1
My master name is hosta
END"""
BQUEUES = """cat <<'END'
QUEUE_NAME      PRIO STATUS          MAX JL/U JL/P JL/H NJOBS  PEND   RUN  SUSP  RSV PJOBS
normal           30  Open:Active       -    -    -    -     3     1     2     0    0     1
night            40  Open:Inact        -    -    -    -     0     0     0     0    0     0
END"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes doubles of LSF's commands from lines of shell."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**lines: str) -> None:
        for name, line in {"bsub": "exit 9", "bjobs": "exit 9", "bkill": "exit 9", **lines}.items():
            program = folder / name
            program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{line}\n")
            program.chmod(0o755)

    return make


def results(**cfg: Any) -> list[tuple[str, str]]:
    return [(result.level, result.message) for result in check_cluster(cfg)]


def test_without_lsf_one_error_says_so(programs: Any) -> None:
    [result] = check_cluster({})
    assert result.level == "error"
    assert result.message == (
        "LSF is not installed: lsid, bsub, bjobs, bkill, bqueues are not on PATH"
    )
    assert "profile.lsf" in result.remedy


def test_version_cluster_and_queues(programs: Any) -> None:
    programs(lsid=LSID, bqueues=BQUEUES)
    version = ("ok", "IBM Spectrum LSF 10.1.0.14, cluster cluster1, master host hosta")
    assert results() == [version, ("ok", "queues: normal, night")]
    assert results(lsf_queue="night") == [
        version,
        ("warning", "no queue is open and active: night (Open:Inact)"),
    ]
    assert results(lsf_queue="day") == [
        version,
        ("error", "there is no queue 'day'; queues: night, normal"),
    ]


def test_a_cluster_that_is_down_is_an_error(programs: Any) -> None:
    programs(
        lsid="echo 'lsid: ls_getclustername() failed: LIM is down; try later' >&2; exit 255",
        bqueues="exit 9",
    )
    assert results() == [
        ("error", "lsid: lsid: ls_getclustername() failed: LIM is down; try later")
    ]
