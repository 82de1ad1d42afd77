"""A site's plugins: a tracker and an event handler."""

import json
import logging
import os
from typing import Any, Iterable, Mapping, Optional

from torchx.tracker.api import Lineage, TrackerArtifact, TrackerBase, TrackerSource


class FileTracker(TrackerBase):
    def __init__(self, path: str) -> None:
        self.path = path

    def _write(self, **record: object) -> None:
        with open(self.path, "a") as f:
            f.write(json.dumps(record) + "\n")

    def _read(self) -> Iterable[Mapping[str, Any]]:
        with open(self.path) as f:
            return [json.loads(line) for line in f]

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Optional[Mapping[str, object]] = None
    ) -> None:
        self._write(run=run_id, name=name, path=path)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        records = [r for r in self._read() if r["run"] == run_id and "name" in r]
        return {r["name"]: TrackerArtifact(r["name"], r["path"], None) for r in records}

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        self._write(run=run_id, data=kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        data = {}
        for record in self._read():
            if record["run"] == run_id:
                data.update(record.get("data", {}))
        return data

    def add_source(
        self, run_id: str, source_id: str, artifact_name: Optional[str] = None
    ) -> None: ...

    def sources(self, run_id: str, artifact_name: Optional[str] = None) -> Iterable[TrackerSource]:
        return []

    def lineage(self, run_id: str) -> Lineage:
        return Lineage()

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        return sorted({record["run"] for record in self._read()})


def create_tracker(config: Optional[str]) -> TrackerBase:
    assert config is not None
    return FileTracker(config)


def event_handler() -> logging.Handler:
    return logging.FileHandler(os.environ["ACME_EVENTS"])
