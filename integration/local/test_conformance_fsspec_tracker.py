"""Runs the conformance suite of trackers on the fsspec tracker, on disk and in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from torchx_specs.trackers.api import TrackerBase
from torchx_testing.tracker_suite import TrackerConformance
from torchx_tracker_fsspec.tracker import create


class TestOnDisk(TrackerConformance):
    tested_name = "fsspec"

    @pytest.fixture
    def config(self, tmp_path: Path) -> str:
        return f"protocol=file;root_path={tmp_path}"

    @pytest.fixture
    def tracker(self, config: str) -> TrackerBase:
        return create(config)

    @pytest.fixture
    def reopen(self, config: str) -> Callable[[], TrackerBase]:
        return lambda: create(config)


class TestInMemory(TestOnDisk):
    @pytest.fixture
    def config(self, tmp_path: Path) -> str:
        fsspec.filesystem("memory").makedirs(str(tmp_path), exist_ok=True)
        return f"protocol=memory;root_path={tmp_path}"
