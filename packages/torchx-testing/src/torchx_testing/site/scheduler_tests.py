"""The tests of ``torchx conformance -s NAME``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torchx_specs.schedulers import Scheduler
from torchx_testing.scheduler_suite import SchedulerConformance
from torchx_testing.site import settings

_SITE = settings.current


class TestSite(SchedulerConformance):
    """The conformance tests of the scheduler that the user has chosen."""

    scheduler_name = _SITE.name
    unsupported = _SITE.unsupported
    pending_cfg = _SITE.pending_cfg
    image = _SITE.image
    timeout = _SITE.timeout

    @pytest.fixture
    def scheduler(self) -> Iterator[Scheduler[Any]]:
        """Yield the scheduler, and close it after the test."""
        assert _SITE.create is not None, "run `torchx conformance`"
        scheduler: Scheduler[Any] = _SITE.create("conformance")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        """Return the options of each submission."""
        return dict(_SITE.cfg)
