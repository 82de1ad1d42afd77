"""A fake tracker that keeps everything in memory, and subclasses with one defect each."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_kit.trackers.lineage import walk_lineage
from torchx_specs.trackers.api import (
    Lineage,
    TrackerArtifact,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
)

Store = dict[str, Any]


class FakeTracker(TrackerBase):
    def __init__(self, store: Store | None = None) -> None:
        self.store: Store = {} if store is None else store
        self.lock = threading.Lock()

    def part(self, run_id: str, name: str) -> dict[Any, Any]:
        runs: dict[str, dict[str, dict[Any, Any]]] = self.store.setdefault("runs", {})
        run = runs.setdefault(run_id, defaultdict(dict))
        return run[name]

    def read(self, run_id: str, name: str) -> dict[Any, Any]:
        found: dict[Any, Any] = self.store.get("runs", {}).get(run_id, {}).get(name, {})
        return dict(found)

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        with self.lock:
            self.part(run_id, "artifacts")[name] = TrackerArtifact(name, path, metadata)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        return self.read(run_id, "artifacts")

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        for key, value in kwargs.items():
            try:
                json.dumps(value)
            except TypeError:
                raise TrackerValueError(f"metadata {key} is nothing that JSON can hold") from None
        with self.lock:
            self.part(run_id, "metadata").update(kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        return self.read(run_id, "metadata")

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        with self.lock:
            self.part(run_id, "sources")[source_id, artifact_name] = True

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        found = (TrackerSource(*key) for key in self.read(run_id, "sources"))
        return [s for s in found if artifact_name is None or s.artifact_name == artifact_name]

    def lineage(self, run_id: str) -> Lineage:
        return walk_lineage(self, run_id)

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        parent = kwargs.get("parent_run_id")
        for run in list(self.store.get("runs", {})):
            if parent is None or parent in [s.source_run_id for s in self.sources(run)]:
                yield run


class MixesRuns(FakeTracker):
    def part(self, run_id: str, name: str) -> dict[Any, Any]:
        return super().part("run", name)

    def read(self, run_id: str, name: str) -> dict[Any, Any]:
        return super().read("run", name)


class FoldsCase(FakeTracker):
    def part(self, run_id: str, name: str) -> dict[Any, Any]:
        return super().part(run_id.lower(), name)

    def read(self, run_id: str, name: str) -> dict[Any, Any]:
        return super().read(run_id.lower(), name)


class StripsValues(FakeTracker):
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        super().add_metadata(
            run_id, **{k: v.strip() if isinstance(v, str) else v for k, v in kwargs.items()}
        )


class KeepsFirstArtifact(FakeTracker):
    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        if name not in self.artifacts(run_id):
            super().add_artifact(run_id, name, path, metadata)


class RaisesForUnknownRuns(FakeTracker):
    def read(self, run_id: str, name: str) -> dict[Any, Any]:
        return dict(self.store["runs"][run_id][name])


class IgnoresTheParent(FakeTracker):
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        return super().run_ids()


class NoLineage(FakeTracker):
    def lineage(self, run_id: str) -> Lineage:
        return Lineage(run_id)


class Forgets(FakeTracker):
    def __init__(self, store: Store | None = None) -> None:
        super().__init__()


class TakesTheFirstSource(FakeTracker):
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        if not list(self.sources(run_id)):
            super().add_source(run_id, source_id, artifact_name)


class RecordsHalf(FakeTracker):
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        for key, value in kwargs.items():
            self.part(run_id, "metadata")[key] = str(value)
            super().add_metadata(run_id, **{key: value})
