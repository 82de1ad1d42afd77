"""Tests of the host that -cfg gives."""

from __future__ import annotations

import pytest

from torchx_cli.arguments.scheduler_choice import take_host


@pytest.mark.parametrize(
    ("name", "literals", "expected"),
    [
        ("slurm", [], ("slurm", [])),
        ("slurm", ["partition=gpu"], ("slurm", ["partition=gpu"])),
        ("slurm", ["host=login1"], ("slurm@login1", [])),
        ("slurm", ["host='login1';a=1;b=2"], ("slurm@login1", ["a=1;b=2"])),
        ("slurm", ["extra='x,host=y',b=2"], ("slurm", ["extra='x,host=y',b=2"])),
        ("slurm@login1", ["a=1,host="], ("slurm", ["a=1"])),
        ("slurm@login2", ["a=1,host=login1,b=2", "c=3"], ("slurm@login1", ["a=1,b=2", "c=3"])),
    ],
)
def test_the_host_of_the_options_becomes_a_part_of_the_name(
    name: str, literals: list[str], expected: tuple[str, list[str]]
) -> None:
    assert take_host(name, literals) == expected
