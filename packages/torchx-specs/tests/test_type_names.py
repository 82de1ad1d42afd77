"""Readable names of types."""

from __future__ import annotations

from typing import Dict, List, Optional

import pytest

from torchx_specs import get_type_name


@pytest.mark.parametrize(
    ("tp", "name"),
    [
        (int, "int"),
        (List[str], "List[str]"),
        (Dict[str, int], "Dict[str, int]"),
        (Optional[int], "Optional[int]"),
        (list[str], "list[str]"),
    ],
)
def test_a_type_s_name_has_its_arguments(tp: object, name: str) -> None:
    assert get_type_name(tp) == name
