"""What the conformance suites of schedulers on another machine share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torchx_kit.hosts.lookup import find_host
from torchx_testing.scheduler_suite import SchedulerConformance


class ConformanceOverSsh(SchedulerConformance):
    """The suite of a scheduler on the machine ``bash``."""

    @pytest.fixture
    def store_secret(self) -> Callable[[str, str, str], object]:
        """Return a function that writes a secret where the job reads it: on the cluster."""

        def store(name: str, key: str, value: str) -> None:
            host = find_host("bash")
            folder = host.resolve("~")
            for part in (".torchx", "secrets", name):
                folder = f"{folder}/{part}"
                host.make_dirs(folder, 0o700)
            host.write(f"{folder}/{key}", value)

        return store
