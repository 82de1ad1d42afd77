"""Tests of the notation of booleans, lists and dicts."""

from __future__ import annotations

import doctest
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs import BindMount, parse_mounts, runopt, runopts, text_values
from torchx_specs.components.converters import converter_for
from torchx_specs.text_values import FALSE_VALUES, TRUE_VALUES, parse_bool, split_list, split_pairs


def test_examples_in_the_docstrings() -> None:
    result = doctest.testmod(text_values)
    assert result.attempted == 2
    assert result.failed == 0


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("", []),
        ("  ", []),
        ("a", ["a"]),
        ("a,b", ["a", "b"]),
        (" a , b ", ["a", "b"]),
        ("a,", ["a"]),
        ("a, ", ["a"]),
        (",", [""]),
        ("a,,b", ["a", "", "b"]),
        (",a", ["", "a"]),
        ("a;b", ["a;b"]),
        ("k=v,k2=v2", ["k=v", "k2=v2"]),
        ('"a,b",c', ["a,b", "c"]),
        ("'a,b' , c", ["a,b", "c"]),
        ("it's,ok", ["it's", "ok"]),
        ("it's,o'k", ["it's", "o'k"]),
        ('a"b,c"', ['a"b', 'c"']),
        ("'a'b,c", ["'a'b", "c"]),
        ("'a' 'b'", ["a' 'b"]),
        ("'',a", ["", "a"]),
        ("''", [""]),
        ("'a", ["'a"]),
        ("' a '", [" a "]),
        ('"it\'s, so"', ["it's, so"]),
        ("héé,日本", ["héé", "日本"]),
    ],
)
def test_split_list(text: str, items: list[str]) -> None:
    assert split_list(text) == items


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("  ", []),
        ("a=1", [("a", "1")]),
        ("a=1,b=2", [("a", "1"), ("b", "2")]),
        ("a=1;b=2", [("a", "1"), ("b", "2")]),
        ("A=1,B=x=y", [("A", "1"), ("B", "x=y")]),
        ("A=x=y,B=1", [("A", "x=y"), ("B", "1")]),
        ("A=1,2;B=3", [("A", "1,2"), ("B", "3")]),
        ("FOO=a,b,BAR=c", [("FOO", "a,b"), ("BAR", "c")]),
        ("FOO=v1;v2,BAR=v3", [("FOO", "v1;v2"), ("BAR", "v3")]),
        ("FOO=v1;v2;BAR=v3", [("FOO", "v1;v2"), ("BAR", "v3")]),
        ("a=,b=1", [("a", ""), ("b", "1")]),
        ("a=", [("a", "")]),
        ("a=1,", [("a", "1,")]),
        ("A=1,,B=2", [("A", "1,"), ("B", "2")]),
        ("a=b=c", [("a", "b=c")]),
        ("a==", [("a", "=")]),
        (" A = 1 , B = 2 ", [("A", "1"), ("B", "2")]),
        ("A='x,y=1',B=2", [("A", "x,y=1"), ("B", "2")]),
        ('A="x,y=1",B=2', [("A", "x,y=1"), ("B", "2")]),
        ("A=it's,B=2", [("A", "it's"), ("B", "2")]),
        ("A='it's',B=2", [("A", "it's"), ("B", "2")]),
        ("A='',B=' '", [("A", ""), ("B", " ")]),
        ("'A,B'=1", [("A,B", "1")]),
        ('A="x"y,B=2', [("A", '"x"y'), ("B", "2")]),
        ("A='x", [("A", "'x")]),
        ("url=http://h/?a=1&b=2", [("url", "http://h/?a=1&b=2")]),
        ("a=1,a=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_split_pairs(text: str, pairs: list[tuple[str, str]]) -> None:
    assert split_pairs(text) == pairs


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("HF_TOKEN:s3cret", "'HF_TOKEN:***' is not of the form key=value"),
        ("A:1,B:s3cret", "'A:***' is not of the form"),
        ("s3cret" * 10, "'***' is not of the form"),
        ("=s3cret", "'=***' has a '=' without a key"),
        ("A=s3cret,=s3cret", "'A=***' has a '=' without a key"),
        ("queue", "'queue' is not of the form"),
    ],
)
def test_errors_show_no_value(text: str, shown: str) -> None:
    with pytest.raises(ValueError, match=re.escape(shown)) as caught:
        split_pairs(text)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("text", ["a", "a,b", "'a=b'", ";"])
def test_pairs_without_an_equals_sign_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form key=value"):
        split_pairs(text)


@pytest.mark.parametrize("text", ["=1", "a=1,=2", "a=1;=", "''=1"])
def test_a_pair_without_a_key_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="without a key before it"):
        split_pairs(text)


@given(st.lists(st.text(), min_size=1))
def test_quoted_items_survive_a_list(items: list[str]) -> None:
    items = [item.replace('"', "") for item in items]
    assert split_list(",".join(f'"{item}"' for item in items)) == items


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_quoted_keys_and_values_survive_pairs(pairs: dict[str, str]) -> None:
    pairs = {key.replace("'", "") or "k": value.replace("'", "") for key, value in pairs.items()}
    assert dict(split_pairs(",".join(f"'{k}'='{v}'" for k, v in pairs.items()))) == pairs


@given(st.text(alphabet="ab=,;'\" "))
def test_any_text_is_split_or_refused(text: str) -> None:
    assert all(isinstance(item, str) for item in split_list(text))
    try:
        pairs = split_pairs(text)
    except ValueError:
        return
    assert all(key for key, _ in pairs)


def read_as_argument(annotation: Any, text: str) -> Any:
    return converter_for(annotation).read(text)


def read_as_option(annotation: Any, text: str) -> Any:
    return runopt(None, annotation, False, "").cast_to_type(text)


class TestEveryReaderAgrees:
    @pytest.mark.parametrize("text", ["'a,b',c", "a, b ,", '"a","b"', "it's,b"])
    def test_on_lists(self, text: str) -> None:
        items = split_list(text)
        assert read_as_argument(list[str], text) == items
        assert read_as_option(list[str], text) == items

    @pytest.mark.parametrize(
        ("pairs", "expected"),
        [
            ("a=1,b=2", {"a": "1", "b": "2"}),
            ("a='1,c=3',b=2", {"a": "1,c=3", "b": "2"}),
            ("a=1,2;b=3", {"a": "1,2", "b": "3"}),
        ],
    )
    def test_on_dicts(self, pairs: str, expected: dict[str, str]) -> None:
        assert read_as_argument(dict[str, str], pairs) == expected
        assert read_as_option(dict[str, str], pairs.replace("=", ":")) == {
            key: value.replace("=", ":") for key, value in expected.items()
        }
        opts = runopts()
        for key in expected:
            opts.add(key, type_=str, help="")
        assert opts.cfg_from_str(pairs) == expected

    @pytest.mark.parametrize("text", [*sorted(TRUE_VALUES | FALSE_VALUES), "True", "OFF"])
    def test_on_booleans(self, text: str) -> None:
        value = parse_bool(text)
        assert read_as_argument(bool, text) is value
        assert read_as_option(bool, text) is value
        [mount] = parse_mounts(["type=bind", "src=/a", "dst=/b", f"readonly={text}"])
        assert mount == BindMount("/a", "/b", read_only=value)
