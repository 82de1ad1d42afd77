"""Test of the example session in the documentation of the scheduler ``sge``, on Grid Engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def test_the_session_of_the_page(
    cluster: Path,
    page_session: Callable[[str], None],
) -> None:
    page_session("sge")
