"""Test of the shell session on the documentation page of ``kubernetes``, on the double."""

from __future__ import annotations

from collections.abc import Callable

from k8s_double.handle import Double


def test_the_session_of_the_page(
    double: Double,
    page_session: Callable[[str], None],
) -> None:
    page_session("kubernetes")
