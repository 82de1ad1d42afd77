"""Tests of roles that are rendered for many replicas."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.role_templates import RoleTemplate
from torchx_specs import Role, macros

VALUES = macros.Values(img_root="/img", app_id="job-1", replica_id="3", rank0_env="RANK0")

pieces = st.one_of(
    st.sampled_from(
        ["${app_id}", "$replica_id", "${rank0_env}", "$${app_id}", "$$", "$", "${HOME}"]
    ),
    st.text(max_size=4),
)
texts = st.lists(pieces, max_size=6).map("".join)
nested = st.recursive(
    st.one_of(texts, st.integers(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def role(args: list[str], env: dict[str, str], metadata: dict[str, Any]) -> Role:
    return Role("trainer", "image", args=args, env=env, metadata=metadata)


@given(
    st.lists(texts, max_size=4),
    st.dictionaries(st.text(max_size=4), texts, max_size=4),
    st.dictionaries(st.text(max_size=4), nested, max_size=3),
)
def test_it_renders_what_apply_returns(
    args: list[str], env: dict[str, str], metadata: dict[str, Any]
) -> None:
    source = role(args, env, metadata)
    template = RoleTemplate(source)
    for k in range(2):
        values = macros.Values("/img", "job-1", str(k), "RANK0")
        expected = values.apply(source)
        assert template.render(values) == expected
        assert template.args(values) == expected.args
        assert template.env(values) == expected.env


def test_what_it_returns_is_the_caller_s() -> None:
    source = role(["a"], {"A": "1"}, {"m": "1"})
    template = RoleTemplate(source)
    template.args(VALUES).append("x")
    template.env(VALUES)["B"] = "2"
    rendered = template.render(VALUES)
    rendered.args.append("y")
    rendered.metadata["n"] = "2"
    assert template.render(VALUES) == source
    assert source == role(["a"], {"A": "1"}, {"m": "1"})


def test_later_changes_of_the_role_make_no_difference() -> None:
    source = role(["${app_id}"], {}, {})
    template = RoleTemplate(source)
    source.args[0] = "changed"
    assert template.args(VALUES) == ["job-1"]


def test_a_subclass_stays_one() -> None:
    class Special(Role):
        pass

    assert type(RoleTemplate(Special("r", "i")).render(VALUES)) is Special
