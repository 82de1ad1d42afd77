"""Tests of the conversion between snake_case and camelCase."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs import cases


class TestCases:
    @pytest.mark.parametrize(
        ("snake", "camel"),
        [
            ("job_queue", "jobQueue"),
            ("a", "a"),
            ("", ""),
            ("_private_name", "_privateName"),
            ("a_b_c", "aBC"),
            ("mem_mb", "memMb"),
        ],
    )
    def test_snake_case_becomes_camel_case(self, snake: str, camel: str) -> None:
        assert cases.snake_to_camel(snake) == camel

    @pytest.mark.parametrize(
        ("camel", "snake"),
        [
            ("jobQueue", "job_queue"),
            ("efsID", "efs_id"),
            ("HTTPServer", "http_server"),
            ("already_snake", "already_snake"),
            ("a", "a"),
            ("", ""),
            ("_privateName", "_private_name"),
        ],
    )
    def test_camel_case_becomes_snake_case(self, camel: str, snake: str) -> None:
        assert cases.camel_to_snake(camel) == snake

    @given(st.from_regex(r"[a-z]{2,}(_[a-z]{2,}){0,3}", fullmatch=True))
    def test_a_name_survives_both_conversions(self, name: str) -> None:
        assert cases.camel_to_snake(cases.snake_to_camel(name)) == name
