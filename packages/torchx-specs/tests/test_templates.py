"""Tests of macros."""

from __future__ import annotations

import copy
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs import Role, macros
from torchx_specs.model.templates import is_template, substitute

VALUES = macros.Values(img_root="/img", app_id="job-1", replica_id="3", rank0_env="RANK0")
NAMES = ["img_root", "app_id", "replica_id", "rank0_env", "base_img_root"]

pieces = st.one_of(
    st.sampled_from(
        [
            *(f"${{{name}}}" for name in NAMES),
            *(f"${name}" for name in NAMES),
            "$${app_id}",
            "$$app_id",
            "$$",
            "$",
            "${",
            "}",
            "${HOME}",
            "$HOME",
            "${app_id",
            "$app_ids",
            "${app_id }",
            "${}",
            "$(id)",
            "`id`",
            "$1",
            "é",
            "_",
            "\n",
        ]
    ),
    st.text(max_size=4),
)
texts = st.lists(pieces, max_size=6).map("".join)
nested = st.recursive(
    st.one_of(texts, st.integers(), st.none(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${app_id}", "job-1"),
        ("$app_id", "job-1"),
        ("${img_root}/bin", "/img/bin"),
        ("$img_root/bin", "/img/bin"),
        ("r${replica_id}-${app_id}", "r3-job-1"),
        ("${base_img_root}", "DEPRECATED"),
        # in a template, names that are not macros stay, and `$$` becomes `$`
        ("$${rank0_env}", "${rank0_env}"),
        ("$$app_id", "$app_id"),
        ("${app_id} ${HOME} $USER $(id) $1 $", "job-1 ${HOME} $USER $(id) $1 $"),
        ("${app_id} $$", "job-1 $"),
        # not templates: returned unchanged
        ("$$", "$$"),
        ("echo $$HOME $${HOME}", "echo $$HOME $${HOME}"),
        ("$app_ids ${app_ids} ${app_id", "$app_ids ${app_ids} ${app_id"),
        ("${app_id }", "${app_id }"),
        ("${APP_ID}", "${APP_ID}"),
        ("app_id", "app_id"),
        ("", ""),
        ("%j", "%j"),
    ],
)
def test_substitution(text: str, expected: str) -> None:
    assert VALUES.substitute(text) == expected


def test_without_rank0_env_its_macro_stays() -> None:
    values = macros.Values("/img", "job-1", "0")
    assert values.substitute("${app_id} ${rank0_env}") == "job-1 ${rank0_env}"
    assert "rank0_env" not in values.to_dict()


def test_to_dict() -> None:
    assert VALUES.to_dict() == {
        "img_root": "/img",
        "app_id": "job-1",
        "replica_id": "3",
        "rank0_env": "RANK0",
        "base_img_root": "DEPRECATED",
    }


def test_the_macros_are_these_texts() -> None:
    assert [getattr(macros, name) for name in NAMES] == [f"${{{name}}}" for name in NAMES]


def test_values_that_look_like_macros_are_not_substituted_again() -> None:
    values = macros.Values("${app_id}", "$$", "\\1", "\\g<0>")
    assert values.substitute("${img_root}|${app_id}|${replica_id}|${rank0_env}") == (
        "${app_id}|$$|\\1|\\g<0>"
    )


@given(texts)
def test_a_template_means_what_string_template_says(text: str) -> None:
    if is_template(text):
        expected = string.Template(text).safe_substitute(VALUES.to_dict())
    else:
        expected = text
    assert substitute(text, VALUES.to_dict()) == expected


@given(st.text())
def test_text_without_a_macro_is_returned_as_it_is(text: str) -> None:
    if not any(name in text for name in NAMES):
        assert not is_template(text)
        assert substitute(text, VALUES.to_dict()) is text


def role(args: list[str], env: dict[str, str], metadata: dict[str, Any]) -> Role:
    return Role("r", "${img_root}", entrypoint="${app_id}", args=args, env=env, metadata=metadata)


class TestApply:
    def test_args_env_and_metadata_and_nothing_else(self) -> None:
        source = role(
            ["${app_id}", "x"],
            {"${app_id}": "${replica_id}"},
            {"a": ["${img_root}", {"b": "$app_id", "c": 1}], "d": ("${app_id}", 2)},
        )
        source.port_map = {"${app_id}": 1}
        applied = VALUES.apply(source)
        assert applied.args == ["job-1", "x"]
        assert applied.env == {"${app_id}": "3"}
        assert applied.metadata == {"a": ["/img", {"b": "job-1", "c": 1}], "d": ("job-1", 2)}
        assert (applied.image, applied.entrypoint) == ("${img_root}", "${app_id}")
        assert applied.port_map == {"${app_id}": 1}

    def test_the_role_stays_as_it_is(self) -> None:
        source = role(["${app_id}"], {"A": "${app_id}"}, {"a": {"b": ["${app_id}"]}})
        before = copy.deepcopy(source)
        applied = VALUES.apply(source)
        applied.metadata["a"]["b"].append("x")
        applied.args.append("x")
        assert source == before

    def test_a_subclass_stays_one(self) -> None:
        class Special(Role):
            pass

        assert type(VALUES.apply(Special("r", "i"))) is Special
