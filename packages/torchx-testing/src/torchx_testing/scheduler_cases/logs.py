"""Conformance tests of logs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timezone
from itertools import zip_longest
from typing import Any, TypeVar

import pytest

from torchx_runner import Runner
from torchx_specs import (
    AppState,
    is_terminal,
)
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.closing import ClosedError
from torchx_testing.scheduler_cases.fixtures import SchedulerFixtures

T = TypeVar("T")


def _start(function: Callable[[], T]) -> Future[T]:
    """Call a function in a thread that does not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=run, daemon=True).start()
    return future


class LogCases(SchedulerFixtures):
    """The tests of logs."""

    def test_log_of_both_streams(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle, _ = self.ended(runner, cfg, self.sh("echo out; echo err >&2; echo end"))
        lines = self.complete_lines(runner, handle, "end", streams=Stream.COMBINED)
        assert sorted(lines) == ["end\n", "err\n", "out\n"]
        assert lines.index("out\n") < lines.index("end\n")

    def test_lines_of_both_streams_keep_their_order(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        self.needs("log_order")
        script = "for i in 1 2 3 4 5; do echo out $i; echo err $i >&2; sleep 0.2; done; echo end"
        handle = self.started(runner, cfg, self.sh(script))
        followed = None
        if not self.lacks("tail"):
            followed = self.lines(runner, handle, should_tail=True, streams=Stream.COMBINED)
        self.finish(runner, handle)
        lines = self.complete_lines(runner, handle, "end", streams=Stream.COMBINED)
        assert len(lines) == 11
        assert self.lines(runner, handle, streams=Stream.COMBINED) == lines
        assert followed in (None, lines)

    def test_log_of_one_stream(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("streams")
        handle, _ = self.ended(runner, cfg, self.sh("echo out; echo err >&2"))
        out = self.complete_lines(runner, handle, "out", streams=Stream.STDOUT)
        err = self.complete_lines(runner, handle, "err", streams=Stream.STDERR)
        assert (out, err) == (["out\n"], ["err\n"])

    def test_log_by_regular_expression(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("regex")
        handle, _ = self.ended(runner, cfg, self.sh("for i in 1 2 3 12; do echo line $i; done"))
        self.complete_lines(runner, handle, "line 12")
        for should_tail in (False, *([] if self.lacks("tail") else [True])):
            lines = self.lines(runner, handle, regex=r"1\d?$", should_tail=should_tail)
            assert lines == ["line 1\n", "line 12\n"]

    def test_log_of_a_time(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("since_until")
        script = "echo early; date +%s; sleep 4; date +%s; echo late"
        handle, _ = self.ended(runner, cfg, self.sh(script))
        everything = self.complete_lines(runner, handle, "late")
        stamps = [int(line) for line in everything if line.strip().isdigit()]
        assert len(stamps) == 2, everything

        def words(zone: timezone | None, **limits: float) -> list[str]:
            times: Any = {k: datetime.fromtimestamp(t, zone) for k, t in limits.items()}
            lines = self.lines(runner, handle, **times)
            return [line.strip() for line in lines if not line.strip().isdigit()]

        between = sum(stamps) / 2
        for zone in (None, timezone.utc):  # a time without a zone is local time
            assert words(zone, since=between) == ["late"]
            assert words(zone, until=between) == ["early"]
            assert words(zone, since=stamps[0] - 60, until=stamps[1] + 60) == ["early", "late"]
            assert words(zone, since=stamps[0] - 60, until=between) == ["early"]
            assert words(zone, since=stamps[1] + 60) == []
            assert words(zone, until=stamps[0] - 60) == []

    @pytest.mark.gate
    def test_log_is_followed_to_the_end(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("tail")
        script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done"
        handle = self.started(runner, cfg, self.sh(script))
        lines = self.lines(runner, handle, should_tail=True)
        assert lines == [f"line {i}\n" for i in range(1, 6)]
        # A call that follows the log of an ended replica returns at once.
        assert self.lines(runner, handle, should_tail=True) == lines

    def test_lines_come_while_the_job_runs(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("tail")
        # Without exec, the shell writes to stderr that its child was killed.
        handle = self.started(runner, cfg, self.sh("echo first; exec sleep 300"))
        with self.cancels_in_time(runner, handle):
            lines = iter(runner.log_lines(handle, "main", should_tail=True))
            assert next(lines) == "first\n"
        # Without following, the call returns although the job runs.
        assert self.lines(runner, handle) == ["first\n"]
        assert self.state(runner, handle) == AppState.RUNNING
        runner.cancel(handle)
        assert list(lines) == []

    @pytest.mark.gate
    def test_closing_ends_the_threads_that_follow_and_wait(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        self.needs("tail", "closing")
        # The job outlasts the test, so that its end cannot end the threads.
        handle = self.started(runner, cfg, self.sh("echo first; exec sleep 300"))
        follows, waits = threading.Event(), threading.Event()

        def follow() -> list[str]:
            lines = []
            for line in runner.log_lines(handle, "main", should_tail=True):
                lines.append(line)
                follows.set()
            return lines

        def wait() -> AppState | None:
            try:
                status = runner.wait(handle, observe=lambda _: waits.set())
            except ClosedError:
                return None
            return status.state if status else AppState.UNKNOWN

        follower, waiter = _start(follow), _start(wait)
        assert follows.wait(self.patience)
        assert waits.wait(self.patience)
        runner.close()
        assert follower.result(self.patience) == ["first\n"]
        # Closing cancels an app that lives in the client.
        assert waiter.result(self.patience) in (None, AppState.CANCELLED)
        state = self.state(runner, handle)  # a closed scheduler can be used again
        assert is_terminal(state) == (waiter.result() is not None)

    def test_log_of_a_job_that_says_nothing(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle, _ = self.ended(runner, cfg, self.sh("exit 0"))
        assert self.lines(runner, handle) == []

    def test_odd_lines_stay_whole(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = (
            "echo; printf 'a\\tb\\n'; printf 'x\\342\\200\\250y\\n'; printf ' indented \\n';"
            " head -c 60000 /dev/zero | tr '\\0' z; echo; echo end"
        )
        handle, _ = self.ended(runner, cfg, self.sh(script))
        lines = self.complete_lines(runner, handle, "end")
        blank = [] if self.lacks("blank_lines") else ["\n"]
        assert [line for line in lines if line[0] != "z"] == [
            *blank,
            "a\tb\n",
            "x\u2028y\n",
            " indented \n",
            "end\n",
        ]
        assert [len(line) for line in lines if line[0] == "z"] == [60001]

    @pytest.mark.gate
    def test_no_log_line_is_cut_or_lost(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i of many; i=$((i+1)); done"
        handle, _ = self.ended(runner, cfg, self.sh(script))
        lines = self.complete_lines(runner, handle, "line 2999 of many")
        # Compare only the first wrong lines: pytest takes minutes to compare two long lists.
        expected = (f"line {i} of many\n" for i in range(3000))
        wrong = [pair for pair in zip_longest(lines, expected) if pair[0] != pair[1]]
        assert wrong[:3] == [], f"of 3000 lines {len(wrong)} are cut, lost or out of order"

    def test_last_line_without_newline(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("unterminated_line")
        handle, _ = self.ended(runner, cfg, self.sh("echo first; printf last"))
        lines = self.complete_lines(runner, handle, "last")
        assert [line.rstrip("\n") for line in lines] == ["first", "last"]

    def test_output_that_is_not_utf8(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("undecodable_output")
        handle, _ = self.ended(runner, cfg, self.sh(r"printf 'a\377b\n'; echo end"))
        lines = self.complete_lines(runner, handle, "end")
        assert len(lines) == 2
        assert lines[0].startswith("a")
        assert lines[0].endswith("b\n")
