"""Tests of data as indented text."""

from __future__ import annotations

import pprint
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from torchx_kit.text.tables import format_data

values = st.recursive(
    st.none() | st.integers() | st.text(max_size=90),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=20), inner, max_size=4)
    ),
)


@given(values)
def test_the_text_is_that_of_pprint(data: Any) -> None:
    assert format_data(data) == pprint.pformat(data, indent=2, width=80)
