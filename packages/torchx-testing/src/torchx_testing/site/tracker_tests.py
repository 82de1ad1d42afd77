"""The tests of ``torchx conformance --tracker NAME``."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx_specs.trackers.api import TrackerBase
from torchx_testing.site import settings
from torchx_testing.tracker_suite import TrackerConformance

_SITE = settings.settings_of("tracker")


class TestSite(TrackerConformance):
    """The conformance tests of the tracker that the user has chosen."""

    unsupported = _SITE.unsupported

    @pytest.fixture
    def reopen(self) -> Callable[[], TrackerBase]:
        """Return a function that opens the test's store, which is empty before the test."""
        config = _SITE.config.replace("{test}", f"test-{uuid.uuid4().hex[:12]}")
        return lambda: _SITE.create(config)

    @pytest.fixture
    def tracker(self, reopen: Callable[[], TrackerBase]) -> TrackerBase:
        """Return a tracker with an empty store."""
        return reopen()

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Callable[[str], str]:
        """Return a function that creates a file, because the tracker may upload artifacts."""

        def make(name: str) -> str:
            path = tmp_path / "artifacts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)
            return str(path)

        return make

    def same_path(self, given: str, found: str) -> bool:
        """Return True if the paths are equal, or if the tracker has uploaded the file."""
        return given == found or found.endswith("/" + Path(given).name)
