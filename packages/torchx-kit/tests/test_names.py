"""Tests of names that obey the rules of a service."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.names import limits as names
from torchx_kit.names.limits import NameRule, fit_name, fit_names

RULES = {
    "DNS_LABEL": (names.DNS_LABEL, r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "DNS_SERVICE": (names.DNS_SERVICE, r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"),
    "LABEL_VALUE": (names.LABEL_VALUE, r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"),
    "CONTAINER": (names.CONTAINER, r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}"),
    "AWS_BATCH": (names.AWS_BATCH, r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,127}"),
    "SAGEMAKER": (names.SAGEMAKER, r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}"),
    "BATCH_JOB": (names.BATCH_JOB, r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}"),
}


@pytest.mark.parametrize("rule_name", RULES)
@given(name=st.text(max_size=200))
def test_result_is_valid_and_stable(rule_name: str, name: str) -> None:
    rule, pattern = RULES[rule_name]
    fitted = fit_name(name, rule)
    assert re.fullmatch(pattern, fitted)
    assert rule.accepts(fitted)
    assert fit_name(name, rule) == fitted
    assert fit_name(fitted, rule) == fitted


@given(st.text(max_size=300))
def test_a_fitted_file_name_is_a_valid_file_name(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    fitted = fit_name(name, names.FILE)
    assert fitted not in ("", ".", "..")
    assert "/" not in fitted
    assert not any(c.isspace() or c == "\0" for c in fitted)
    assert len(os.fsencode(fitted)) <= 200


@pytest.mark.parametrize("name", ["trainer", "my.app_1", "caf\u00e9", "a,b=c", "x+y@z"])
def test_valid_file_names_stay_unchanged(name: str) -> None:
    assert fit_name(name, names.FILE) == name


@given(st.lists(st.text(max_size=100), max_size=20))
def test_fitted_names_stay_different(given_names: list[str]) -> None:
    fitted = fit_names(given_names, names.DNS_LABEL)
    assert set(fitted) == set(given_names)
    assert len(set(fitted.values())) == len(fitted)
    assert all(names.DNS_LABEL.accepts(name) for name in fitted.values())


def test_a_valid_name_stays_unchanged_if_another_collides() -> None:
    fitted = fit_names(["A", "a", "a_", "a"], names.DNS_LABEL)
    assert fitted["a"] == "a"
    assert fitted["A"].startswith("a-")
    assert len(set(fitted.values())) == 3


def test_long_names_that_differ_at_the_end_stay_different() -> None:
    one, two = fit_name("x" * 80 + "1", names.DNS_LABEL), fit_name("x" * 80 + "2", names.DNS_LABEL)
    assert one != two
    assert len(one) == 63
    assert one.startswith("x" * 50)


def test_distinct_adds_a_tag_only_to_changed_names() -> None:
    assert fit_name("a-b", names.DNS_LABEL, distinct=True) == "a-b"
    changed = fit_name("a_b", names.DNS_LABEL, distinct=True)
    assert re.fullmatch(r"a-b-[a-z0-9]{6}", changed)


def test_bytes_are_counted_where_the_rule_says_so() -> None:
    fitted = fit_name("\u00e9" * 150, names.FILE)
    assert len(fitted.encode()) <= 200
    assert len(fitted.encode()) > 190


@pytest.mark.parametrize("length", [1, 3, 6, 8, 10])
def test_names_fit_a_shorter_limit(length: int) -> None:
    rule = names.DNS_SERVICE.within(length)
    assert rule.accepts(fit_name("my-long-name", rule))


def test_a_name_without_valid_characters_becomes_the_fallback() -> None:
    assert fit_name("---", NameRule(10, "a-z", fallback="app")) == "app"
    assert fit_name("", names.DNS_LABEL) == "x"


def test_a_rule_may_be_defined_elsewhere() -> None:
    rule = NameRule(5, "A-Z", replacement="X")
    assert rule.accepts("ABCDE")
    assert not rule.accepts("ABCDEF")
    assert fit_name("AB.CD", rule) == "ABXCD"
