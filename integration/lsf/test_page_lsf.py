"""Test of the example session in the documentation of the scheduler ``lsf``, on the double."""

from __future__ import annotations

from collections.abc import Callable

from torchx_sched_lsf.scheduler import LsfScheduler


def test_the_session_of_the_page(
    scheduler: LsfScheduler,
    page_session: Callable[[str], None],
) -> None:
    page_session("lsf")
