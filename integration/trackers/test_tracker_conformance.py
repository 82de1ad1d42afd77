"""Runs the conformance suite of trackers on real stores and, for W&B, offline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.trackers.api import TrackerBase
from torchx_testing.tracker_suite import TrackerConformance
from torchx_tracker.trackers import build_tracker

_numbers = itertools.count()


class TestFsspecOnADisk(TrackerConformance):
    tested_name = "fsspec"

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], TrackerBase]:
        return lambda: build_tracker("fsspec", f"protocol=file;root_path={tmp_path}")

    @pytest.fixture
    def tracker(self, reopen: Callable[[], TrackerBase]) -> TrackerBase:
        return reopen()


class TestFsspecInMemory(TrackerConformance):
    tested_name = "fsspec"

    @pytest.fixture
    def reopen(self) -> Callable[[], TrackerBase]:
        root = f"/conformance/{next(_numbers)}"
        return lambda: build_tracker("fsspec", f"protocol=memory;root_path={root}")

    @pytest.fixture
    def tracker(self, reopen: Callable[[], TrackerBase]) -> TrackerBase:
        return reopen()


class TestFsspecOnS3(TrackerConformance):
    tested_name = "fsspec"

    @pytest.fixture
    def reopen(self, s3_config: str) -> Callable[[], TrackerBase]:
        return lambda: build_tracker("fsspec", s3_config.replace("\n", ";"))

    @pytest.fixture
    def tracker(self, reopen: Callable[[], TrackerBase]) -> TrackerBase:
        return reopen()


class TestMLflowServer(TrackerConformance):
    tested_name = "mlflow"
    unsupported = {"typed_metadata": "MLflow's tags are text"}

    @pytest.fixture
    def reopen(self, mlflow_server: Any) -> Callable[[], TrackerBase]:
        config = f"tracking_uri={mlflow_server.url};experiment_name=conformance-{next(_numbers)}"
        return lambda: build_tracker("mlflow", config)

    @pytest.fixture
    def tracker(self, reopen: Callable[[], TrackerBase]) -> TrackerBase:
        return reopen()

    @pytest.fixture
    def artifact(self, tmp_path: Path) -> Callable[[str], str]:
        def make(name: str) -> str:
            path = tmp_path / name
            path.write_text(name)
            return str(path)

        return make

    def same_path(self, given: str, found: str) -> bool:
        # The file was uploaded, to a folder with the name of the artifact.
        return found.endswith("/" + Path(given).name) and "/artifacts/" in found


class TestWandbOffline(TrackerConformance):
    """Runs the suite with W&B's own library, without a server; it was never run on W&B's server."""

    tested_name = "wandb"

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], TrackerBase]:
        return lambda: build_tracker("wandb", f"mode=offline;project=conformance;dir={tmp_path}")

    @pytest.fixture
    def tracker(self, reopen: Callable[[], TrackerBase]) -> Iterator[TrackerBase]:
        made: Any = reopen()
        yield made
        made.close()
