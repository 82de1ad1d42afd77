"""What is asked of a registry, without one."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from torchx_workspace_docker.registry.client import _seconds


@pytest.mark.parametrize(("said", "seconds"), [("7", 7), ("0", 0), ("", 3), ("soon", 3)])
def test_how_long_to_wait(said: str, seconds: float) -> None:
    assert _seconds(said, 3) == seconds


def test_until_when_to_wait() -> None:
    assert 8 < _seconds(formatdate(time.time() + 10, usegmt=True), 3) <= 10
    assert _seconds(formatdate(time.time() - 10, usegmt=True), 3) == 0
