"""Tests of the agreement in random orders of events, without threads and processes.

The board shows a value to each rank at another time, as a network file system may do.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from torchx_resilience import AgreementError, agreement
from torchx_resilience.agreement import Agreement
from torchx_resilience.boards import BOARD_ERRORS


class SlowBoard:
    """The view of one rank on values that all ranks share."""

    def __init__(self, values: dict[str, str], chance: random.Random) -> None:
        self._values = values
        self._chance = chance
        self._seen: dict[str, str] = {}
        self.broken = False

    def set(self, key: str, value: str) -> None:
        if self.broken:
            raise OSError("broken")
        self._values[key] = value
        self._seen[key] = value

    def get(self, keys: list[str]) -> list[str] | None:
        if self.broken:
            raise OSError("broken")
        for key, value in self._values.items():
            if self._chance.random() < 0.3:
                self._seen[key] = value
        if not all(key in self._seen for key in keys):
            return None
        return [self._seen[key] for key in keys]


class FakeThread:
    """A thread that the test runs: it calls ``_exchange``."""

    def __init__(self, **options: Any) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self, timeout: float) -> None:
        pass


class Rank:
    """A rank that trains: ``step`` is the step whose ``should_stop`` comes next."""

    def __init__(
        self, rank: int, world: int, values: dict[str, str], chance: random.Random, start: int
    ) -> None:
        self.signals = SimpleNamespace(
            noted=False, time_left=lambda: None, expect_end=lambda seconds: None
        )
        self.board = SlowBoard(values, chance)
        signals: Any = self.signals
        self.agreement = Agreement(self.board, rank, world, signals, 0.0)
        self.step = start
        self.stopped = False

    def poll(self) -> None:
        if not self.agreement._settled.is_set():
            try:
                self.agreement._exchange()
            except BOARD_ERRORS:
                pass

    def train(self) -> bool:
        """Do one step, unless the main thread waits; return whether it did."""
        waits = self.agreement._frozen and not self.agreement._settled.is_set()
        if self.stopped or waits:
            return False
        if self.agreement.should_stop(self.step):
            self.stopped = True
        else:
            self.step += 1
        return True


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement.threading, "Thread", FakeThread)  # type: ignore[attr-defined]


@pytest.mark.parametrize("lockstep", [True, False], ids=["lockstep", "different-speeds"])
@pytest.mark.parametrize("seed", range(300))
def test_all_ranks_stop_at_the_same_step_in_any_order_of_events(seed: int, lockstep: bool) -> None:
    chance = random.Random(seed)  # noqa: S311
    world = chance.choice([2, 3, 8])
    values: dict[str, str] = {}
    start = chance.choice([0, 100])
    ranks = [Rank(number, world, values, chance, start) for number in range(world)]
    speeds = [chance.choice([1, 5, 20]) for _ in ranks]
    signalled = chance.sample(ranks, chance.randint(1, world))
    for _ in range(chance.choice([0, 50, 500])):  # before the first signal
        event(chance, ranks, speeds, lockstep)
    while not all(rank.stopped for rank in ranks):
        if signalled and chance.random() < 0.05:
            signalled.pop().signals.noted = True
        event(chance, ranks, speeds, lockstep)
    assert len({rank.step for rank in ranks}) == 1
    assert values["stop"] == str(ranks[0].step) or ranks[0].step == start


def event(chance: random.Random, ranks: list[Rank], speeds: list[int], lockstep: bool) -> None:
    """Let one rank poll, or do a step; in lockstep, a step needs all ranks to have begun it."""
    if chance.random() < 0.3:
        chance.choice(ranks).poll()
        return
    [rank] = chance.choices(ranks, speeds)
    if not lockstep or all(rank.step <= other.step for other in ranks):
        rank.train()


def test_rank_that_has_done_all_steps_does_not_hold_up_others() -> None:
    chance = random.Random(1)  # noqa: S311
    ranks = [Rank(number, 2, {}, chance, 0) for number in range(2)]
    values = ranks[0].board._values
    ranks[1].board._values = values
    for _ in range(10):
        ranks[0].train()
    ranks[0].agreement.finish(9)
    ranks[1].signals.noted = True
    while ranks[1].step < 10:
        ranks[1].poll()
        ranks[1].train()
    assert not ranks[1].stopped
    ranks[1].agreement.finish(9)


def test_stop_is_agreed_after_the_board_was_broken() -> None:
    chance = random.Random(2)  # noqa: S311
    values: dict[str, str] = {}
    ranks = [Rank(number, 2, values, chance, 0) for number in range(2)]
    ranks[1].signals.noted = True
    for number in range(200):
        for rank in ranks:
            rank.board.broken = number % 3 != 0
            rank.poll()
            rank.train()
    assert [rank.stopped for rank in ranks] == [True, True]
    assert ranks[0].step == ranks[1].step


def test_rank_that_never_answers_is_an_error() -> None:
    rank = Rank(0, 2, {}, random.Random(3), 0)  # noqa: S311
    rank.signals.noted = True
    rank.poll()
    with pytest.raises(AgreementError, match=r"rank 0: the 2 ranks did not agree .* within 0 s"):
        rank.agreement.should_stop(0)
