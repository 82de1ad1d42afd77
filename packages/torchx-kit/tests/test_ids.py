"""Tests of random ids, and of names that these ids make unique."""

from __future__ import annotations

import random

import pytest

from torchx_kit.names.ids import (
    END_CANDIDATES,
    START_CANDIDATES,
    make_unique,
    random_id,
    random_uint64,
)


class TestIds:
    def test_alphabets(self) -> None:
        assert START_CANDIDATES == "bcdfghjklmnpqrstvwxz"
        assert END_CANDIDATES == "bcdfghjklmnpqrstvwxz012345679"

    def test_of_what_they_consist(self) -> None:
        for _ in range(200):
            made = random_id()
            assert made[0] in START_CANDIDATES
            assert set(made) <= set(END_CANDIDATES)
            assert 6 < len(made) <= 14

    @pytest.mark.parametrize("length", [-1, 0, 1, 5])
    def test_at_most_so_long(self, length: int) -> None:
        assert len(random_id(length)) == max(0, length)

    def test_make_unique(self) -> None:
        made = make_unique("my-job")
        assert made.startswith("my-job-")
        assert len(made) > len("my-job-") + 6
        assert len(make_unique("x", 4)) == len("x-") + 4

    def test_a_seed_makes_no_difference(self) -> None:
        made = set()
        for _ in range(50):
            random.seed(0)
            made.add(random_id())
        assert len(made) == 50

    def test_64_bits(self) -> None:
        assert all(0 <= random_uint64() < 2**64 for _ in range(50))
        assert any(random_uint64() >= 2**60 for _ in range(200))

    def test_known_bits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.urandom", lambda n: (1 + 20 * 3).to_bytes(n, "big"))
        assert random_id() == START_CANDIDATES[1] + END_CANDIDATES[3]
