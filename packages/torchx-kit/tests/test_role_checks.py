"""Tests of the checks of roles and replicas."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_kit import role_checks
from torchx_kit.errors import UnknownReplicaError
from torchx_specs import Role
from torchx_specs.errors import RequestError


def test_for_each_role_raises_the_problems_of_all_roles_at_once() -> None:
    roles = [Role("x", "i"), Role("y", "i")]
    assert role_checks.for_each_role(roles, lambda role: role.name) == ["x", "y"]

    def refuse(role: Role) -> None:
        raise RequestError([f"{role.name} is bad", "no"])

    with pytest.raises(RequestError) as caught:
        role_checks.for_each_role(roles, refuse)
    assert list(caught.value.problems) == [
        *("role 'x': x is bad", "role 'x': no", "role 'y': y is bad", "role 'y': no")
    ]


def test_an_unknown_role_names_the_nearest() -> None:
    with pytest.raises(
        UnknownReplicaError,
        match=r"app a has no role 'trainr'; did you mean 'trainer'\? roles: trainer, ps",
    ):
        role_checks.check_replica("a", {"trainer": 2, "ps": 1}, "trainr", 0)


def test_a_role_that_is_no_text_is_unknown() -> None:
    role: Any = None  # What callers of `Runner.log_lines` pass for "the only role".
    with pytest.raises(UnknownReplicaError, match="app a has no role 'None'; roles: trainer"):
        role_checks.check_replica("a", {"trainer": 2}, role, 0)


@pytest.mark.parametrize("index", [-1, 2])
def test_an_unknown_replica_names_the_valid_ones(index: int) -> None:
    with pytest.raises(UnknownReplicaError, match=f"no replica {index}; its replicas are 0 to 1"):
        role_checks.check_replica("a", {"trainer": 2}, "trainer", index)


def test_a_known_replica_is_accepted() -> None:
    role_checks.check_replica("a", {"trainer": 2}, "trainer", 1)
