"""Tests of logs of older schedulers, and of last lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.log_items import PartialLine
from torchx_specs.schedulers.logs import LogQuery, Logs, keep_last

LINES = [f"line {n}\n" for n in range(20)]


class _Scheduler(Scheduler[Any]):
    def __init__(self) -> None:
        super().__init__("test", "session")
        self.calls: list[dict[str, Any]] = []

    def _submit_dryrun(self, *args: Any) -> Any: ...
    def schedule(self, *args: Any) -> str:
        return ""

    def describe(self, *args: Any) -> None: ...
    def list(self, *args: Any) -> Any: ...
    def _cancel_existing(self, *args: Any) -> None: ...


class OlderScheduler(_Scheduler):
    """A scheduler with the signature of ``log_iter`` of TorchX 0.7."""

    def log_iter(  # type: ignore[override]
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: Any = None,
        until: Any = None,
        should_tail: bool = False,
        streams: Any = None,
    ) -> Iterable[str]:
        self.calls.append({"should_tail": should_tail})
        return [*LINES, *(["added\n"] if should_tail else [])]


class LastLines(Logs["NewerScheduler"]):
    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        self.scheduler.calls.append({"last": query.last, "partial": query.partial})
        return LINES if query.last is None else LINES[len(LINES) - query.last :]


class NewerScheduler(_Scheduler):
    features = SchedulerFeatures(logs=True, last=True, partial=True)

    @property
    def app_logs(self) -> LastLines:
        return LastLines(self)


def read(scheduler: Scheduler[Any], **options: Any) -> list[str]:
    runner = Runner("test", {"s": lambda session_name, **params: scheduler})
    blocks = runner.log_blocks("s://test/app", [("r", 0)], **options)
    lines: list[str] = []
    for _, block in blocks:
        assert not isinstance(block, Exception), block
        lines += block
    return lines


@pytest.mark.parametrize("last", [0, 1, 5, 100])
def test_an_older_scheduler_shows_its_last_lines(last: int) -> None:
    assert read(OlderScheduler(), last=last) == LINES[max(0, 20 - last) :]
    followed = read(OlderScheduler(), last=last, should_tail=True, partial=True)
    assert followed == [*LINES[max(0, 20 - last) :], "added\n"]


def test_a_newer_scheduler_is_asked_for_the_last_lines_only() -> None:
    scheduler = NewerScheduler()
    assert read(scheduler, last=3) == LINES[-3:]
    assert read(scheduler, last=3, should_tail=True, partial=True) == LINES[-3:]
    assert scheduler.calls == [{"last": 3, "partial": False}, {"last": 3, "partial": True}]


def test_last_lines_that_match_need_the_whole_log() -> None:
    scheduler = NewerScheduler()
    read(scheduler, last=3, regex="line")
    assert scheduler.calls == [{"last": None, "partial": False}]


def test_lines_that_are_skipped_are_counted_without_their_pieces() -> None:
    def read(keys: Iterable[int], follow: bool) -> Iterator[tuple[int, Iterable[str]]]:
        if not follow:
            yield 0, ["1\n", "2\n"]
            return
        yield 0, ["1\n", PartialLine("2")]
        yield 0, ["\n", PartialLine("3")]
        yield 0, ["\n"]

    assert [list(block) for _, block in keep_last(read, [0], 0, True)][-2:] == [["3"], ["\n"]]


def test_following_an_endless_block_yields_its_lines_as_they_come() -> None:
    def read(keys: Iterable[int], follow: bool) -> Iterator[tuple[int, Iterable[str]]]:
        yield 0, itertools.cycle(LINES) if follow else LINES

    ((_, block),) = keep_last(read, [0], 2, True)
    assert not isinstance(block, Exception)
    assert list(itertools.islice(block, 3)) == ["line 18\n", "line 19\n", "line 0\n"]
