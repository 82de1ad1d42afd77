"""Tests of the header Retry-After, without a registry."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from torchx_workspace_docker.registry.connection import _seconds


@pytest.mark.parametrize(("header", "seconds"), [("7", 7), ("0", 0), ("", 3), ("soon", 3)])
def test_retry_after_in_seconds_replaces_the_default(header: str, seconds: float) -> None:
    assert _seconds(header, 3) == seconds


def test_retry_after_may_be_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    assert _seconds(formatdate(1_010, usegmt=True), 3) == 10
    assert _seconds(formatdate(990, usegmt=True), 3) == 0
