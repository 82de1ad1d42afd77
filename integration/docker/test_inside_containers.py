"""Runs the tests of ``torchx exec``, ``shell``, ``cp`` and ``forward`` on a real engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from docker_engine import BUSYBOX
from inside_cases import InsideCases


class TestInsideContainers(InsideCases):
    run = ("-s", "local_docker", "-cfg", "pull=never", "--workspace=", "--detach")
    image = BUSYBOX
    copies_ended = True

    @pytest.fixture
    def environment(self, environment: dict[str, str], engine: dict[str, str]) -> dict[str, str]:
        return {**environment, **engine}
