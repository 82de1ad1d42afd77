"""Tests of requests as YAML text."""

from __future__ import annotations

import yaml

from torchx_kit.text.yaml_text import yaml_text


def test_the_text_parses_to_the_same_data() -> None:
    data = {"b": [1, None, True], "a": {"text": "one\ntwo\n", "odd": "é: 'x'"}}
    assert yaml.safe_load(yaml_text(data)) == data


def test_a_text_of_several_lines_is_a_block() -> None:
    assert "|\n" in yaml_text({"script": "one\ntwo\n"})


def test_an_object_that_occurs_twice_is_written_twice() -> None:
    shared = ["x"]
    assert "&" not in yaml_text({"a": shared, "b": shared})


def test_the_order_of_keys_is_a_choice() -> None:
    assert yaml_text({"b": 1, "a": 2}) == "a: 2\nb: 1\n"
    assert yaml_text({"b": 1, "a": 2}, sort_keys=False) == "b: 1\na: 2\n"


def test_texts_are_quoted_as_in_documents() -> None:
    # Other YAML readers take these texts for numbers or booleans, or replace the line break.
    assert yaml_text({"a": "1e3", "b": "y", "c": "one\rtwo\n"}) == (
        "a: '1e3'\nb: 'y'\nc: \"one\\rtwo\\n\"\n"
    )
