"""Tests of sessions: the filter of srun's messages, and a host without interactive commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.testing import FakeHost
from torchx_sched_slurm.sessions import MessageFilter
from torchx_specs.schedulers.sessions import NotSupportedError

KEPT = [
    b"srun: error: Unable to create step for job 7: Job/step already completing\n",
    b"a line that names srun: error: n1: task 0: Killed\n",
    b"slurmstepd: error: Exceeded job memory limit\n",
    b"\0\xff srun: \n",
]
DROPPED = [
    b"srun: error: n1: task 0: Exited with exit code 7\n",
    b"srun: error: n1: task 0: Killed\r\n",
    b"srun: Force Terminated StepId=1.3\n",
    b"srun: forcing job termination\n",
    b"srun: Job step aborted: Waiting up to 5 seconds for job step to finish.\n",
    b"slurmstepd: error: *** STEP 2.5 ON n1 CANCELLED AT 2026-11-23T03:26:30 ***\n",
    b"slurmstepd-n1: error: *** STEP 2.5 ON n1 CANCELLED AT 2026-11-23T03:26:30 ***\n",
]


def filtered(data: bytes, size: int) -> bytes:
    """Return the filtered output for data that arrives in pieces of ``size`` bytes."""
    filter_ = MessageFilter()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(map(filter_.feed, pieces)) + filter_.rest()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_only_messages_about_the_end_are_dropped(size: int) -> None:
    mixed = b"".join(kept + dropped for kept, dropped in zip(KEPT, DROPPED, strict=False))
    assert filtered(mixed + b"".join(DROPPED[4:]), size) == b"".join(KEPT)
    assert filtered(DROPPED[0].rstrip(b"\n"), size) == b""


def test_text_without_a_newline_is_not_held() -> None:
    long = b"srun: " + b"x" * 5000
    for text in (b"prompt> ", b"a\nb", long, b"srun is here"):
        assert MessageFilter().feed(text) == text
    assert MessageFilter().feed(b"a\nsru") == b"a\n"


def test_a_host_without_attached_commands_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotSupportedError, match="FakeHost cannot run interactive commands"):
        Host.attached_command(FakeHost(str(tmp_path), lambda *_: ""), ["true"], tty=False)
