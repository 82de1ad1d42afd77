"""Tests of the resources that a sweep's elements use, and of the limits of these resources."""

from __future__ import annotations

import pytest

from torchx_specs import AppDef, Resource, Role
from torchx_specs.errors import RequestError
from torchx_sweep.limits import Usage, checked_limits, machine_limits, parse_limits, usage


def test_replicas_add_up_and_a_missing_number_of_cpus_is_one() -> None:
    roles = [
        Role("a", image="", num_replicas=2, resource=Resource(cpu=3, gpu=1, memMB=10)),
        Role("b", image="", num_replicas=3, resource=Resource(cpu=-1, gpu=-1, memMB=-1)),
    ]
    assert usage(AppDef("x", roles=roles)) == Usage(cpus=9, gpus=2, memMB=20)


def test_limits_are_parsed() -> None:
    assert parse_limits(["cpus=8,gpus=0", "memMB=100"]) == {"cpus": 8, "gpus": 0, "memMB": 100}
    assert parse_limits(["cpus=1.5"]) == {"cpus": 1.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu=8", "unknown resource 'cpu'; did you mean 'cpus'"),
        ("cpus=many", "the limit of cpus is 'many'; it must be a number, 0 or more"),
        ("cpus", "is not of the form"),
    ],
)
def test_a_malformed_limit_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        checked_limits(parse_limits([text]))


def test_the_gpus_of_this_machine_are_those_of_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert machine_limits()["gpus"] == 2
