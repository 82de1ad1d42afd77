"""Tests of the checks of apps, roles and replicas."""

from __future__ import annotations

import pytest

from torchx_kit import role_checks
from torchx_kit.errors import UnknownReplicaError
from torchx_specs import AppDef, Role
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


def test_an_app_without_roles_is_a_problem() -> None:
    problems = list(role_checks.app_problems(AppDef("a", [])))
    assert problems == ["app 'a' has no roles; add at least one Role to AppDef.roles"]


def test_each_duplicate_name_is_one_problem() -> None:
    app = AppDef("a", [Role("x", "i"), Role("y", "i"), Role("x", "i")])
    assert list(role_checks.app_problems(app)) == [
        "2 roles are named 'x'; give each role its own name"
    ]


def test_a_complete_role_has_no_problems() -> None:
    role = Role("trainer", "repo/image:1", entrypoint="python", args=["-m", "x"], env={"A": "b=c"})
    checks = (
        role_checks.image_problems(role),
        role_checks.entrypoint_problems(role),
        role_checks.replica_count_problems(role),
        role_checks.text_problems(role, "the API"),
    )
    assert [list(check) for check in checks] == [[], [], [], []]


def test_arguments_and_values_need_not_be_strings() -> None:
    role = Role("r", "i", args=[1, 0.5], env={"N": 2})  # type: ignore[list-item, dict-item]
    assert list(role_checks.text_problems(role, "the API")) == []
    assert list(role_checks.variable_problems("N", 2, "the API")) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("image", ["", "two words", "a\tb"])
def test_an_unusable_image_is_a_problem(image: str) -> None:
    assert len(list(role_checks.image_problems(Role("r", image)))) == 1


def test_a_missing_entrypoint_is_a_problem() -> None:
    assert len(list(role_checks.entrypoint_problems(Role("r", "i")))) == 1


def test_replica_and_retry_counts_have_a_lower_limit() -> None:
    role = Role("r", "i", num_replicas=0, max_retries=-1)
    assert list(role_checks.replica_count_problems(role)) == [
        "num_replicas is 0; it must be 1 or more",
        "max_retries is -1; it must be 0 or more",
    ]
    assert len(list(role_checks.replica_count_problems(role, least=0))) == 1


def test_replica_counts_have_an_upper_limit() -> None:
    assert list(role_checks.replica_count_problems(Role("r", "i", num_replicas=100_000))) == []
    assert list(role_checks.replica_count_problems(Role("r", "i", num_replicas=10_000_000))) == [
        "num_replicas is 10000000; it must be 100000 or less"
    ]


def test_texts_that_json_cannot_carry_are_named_by_their_place() -> None:
    role = Role("r", "i", entrypoint="a\0", args=["ok", "\udcff"], env={"A=B": "x", "C": "\0"})
    assert list(role_checks.text_problems(role, "the API of X")) == [
        "entrypoint contains a NUL character",
        "args[1] contains bytes that are not UTF-8, which the API of X cannot carry",
        "env has 'A=B', which is not a valid variable name",
        "env['C'] contains a NUL character",
    ]


def test_an_unknown_role_names_the_nearest() -> None:
    with pytest.raises(
        UnknownReplicaError,
        match=r"app a has no role 'trainr'; did you mean 'trainer'\? roles: trainer, ps",
    ):
        role_checks.check_replica("a", {"trainer": 2, "ps": 1}, "trainr", 0)


@pytest.mark.parametrize("index", [-1, 2])
def test_an_unknown_replica_names_the_valid_ones(index: int) -> None:
    with pytest.raises(UnknownReplicaError, match=f"no replica {index}; its replicas are 0 to 1"):
        role_checks.check_replica("a", {"trainer": 2}, "trainer", index)


def test_a_known_replica_is_accepted() -> None:
    role_checks.check_replica("a", {"trainer": 2}, "trainer", 1)
