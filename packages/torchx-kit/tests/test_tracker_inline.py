"""Tests of configurations of trackers in ``data:`` URIs."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.trackers.inline import from_data_uri, to_data_uri
from torchx_specs.errors import TrackerError


@given(st.text())
def test_a_data_uri_holds_any_text(text: str) -> None:
    uri = to_data_uri(text)
    assert from_data_uri(uri) == text
    assert uri.isascii()
    assert uri.isprintable()
    assert not set(uri) & set(" $`'\"\\=;&|")


def test_base64_uris_are_read() -> None:
    body = base64.b64encode("a=é".encode()).decode()
    assert from_data_uri(f"data:text/plain;base64,{body}") == "a=é"


@pytest.mark.parametrize("uri", ["data:", "data:x", "data:,%zz", "data:;base64,a", "data:,%ff"])
def test_a_broken_data_uri_is_an_error_of_ours(uri: str) -> None:
    with pytest.raises(TrackerError, match="inlined configuration"):
        from_data_uri(uri)
