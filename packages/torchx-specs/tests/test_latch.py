"""Tests of the event that an interrupted wait leaves usable."""

from __future__ import annotations

import itertools
import sys
import threading
from types import FrameType
from typing import Any

from patience import PATIENCE
from torchx_specs.latch import Latch


def test_waits_end_when_the_latch_is_set() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(-1.0)
    threads = [threading.Thread(target=latch.wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    latch.set()
    latch.set()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert latch.is_set()
    assert latch.wait()


def test_an_interrupt_at_any_line_of_a_wait_leaves_the_latch_usable() -> None:
    class InterruptError(Exception):
        pass

    def interrupted_at(number: int) -> bool:
        """Wait with an interrupt at the line with this number; return False after the last line."""
        latch = Latch()
        lines = 0

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal lines
            lines += event == "line"
            if lines == number:
                lines += 1
                raise InterruptError
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            latch.wait(0)
        except InterruptError:
            is_interrupted = True
        else:
            is_interrupted = False
        finally:
            sys.settrace(before)
        thread = threading.Thread(target=latch.set, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        return is_interrupted

    number = next(n for n in itertools.count(1) if not interrupted_at(n))
    assert number > 1
