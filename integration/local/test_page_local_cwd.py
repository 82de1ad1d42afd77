"""Runs the shell session on the documentation page of ``local_cwd`` on this machine."""

from __future__ import annotations

from collections.abc import Callable


def test_the_session_of_the_page(
    page_session: Callable[[str], None],
) -> None:
    page_session("local_cwd")
