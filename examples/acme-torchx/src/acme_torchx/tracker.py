"""The tracker ``acme``: records of runs, in the database of the job table."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torchx_kit.trackers.checks import json_text, parent_run_filter
from torchx_kit.trackers.lineage import lineage_from_links
from torchx_specs.trackers.api import (
    Lineage,
    LineageLink,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
)

from acme_torchx.database import acme_home, transaction


class AcmeTracker(TrackerBase):
    """Keeps one database row for each metadata key, artifact and source of a run.

    Args:
        path: The database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact; replace an artifact of the same name."""
        value = [path, None if metadata is None else dict(metadata)]
        self._write(run_id, "artifact", {name: json_text(name, run_id, value)})

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name."""
        return {
            name: TrackerArtifact(name, *value) for name, value in self._read(run_id, "artifact")
        }

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Record key-value pairs; overwrite existing keys."""
        texts = {key: json_text(key, run_id, value) for key, value in kwargs.items()}
        self._write(run_id, "metadata", texts)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run."""
        return dict(self._read(run_id, "metadata"))

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run was made from another run, or from an artifact of that run."""
        text = json.dumps([source_id, artifact_name])
        self._write(run_id, "source", {text: text})

    def sources(self, run_id: str, artifact_name: str | None = None) -> list[TrackerSource]:
        """Return the sources of a run; with ``artifact_name``, only those with that artifact."""
        found = [TrackerSource(*value) for _, value in self._read(run_id, "source")]
        return [one for one in found if artifact_name in (None, one.artifact_name)]

    def lineage(self, run_id: str) -> Lineage:
        """Return the ancestors and descendants of a run."""
        return lineage_from_links(run_id, self._links())

    def run_ids(self, **kwargs: str) -> list[str]:
        """Return the ids of all runs, or only of runs that were made from ``parent_run_id``."""
        parent = parent_run_filter(kwargs)
        if parent is not None:
            made = (link.run_id for link in self._links() if link.source_run_id == parent)
            return list(dict.fromkeys(made))
        with self._database() as database:
            return [run for (run,) in database.execute("SELECT DISTINCT run FROM records")]

    def _links(self) -> list[LineageLink]:
        with self._database() as database:
            query = "SELECT run, value FROM records WHERE kind = 'source' ORDER BY number"
            return [LineageLink(run, *json.loads(value)) for run, value in database.execute(query)]

    def _write(self, run_id: str, kind: str, texts: Mapping[str, str]) -> None:
        rows = [(run_id, kind, key, text) for key, text in texts.items()]
        with self._database() as database:
            database.executemany(
                "INSERT INTO records (run, kind, key, value) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET value = excluded.value",
                rows,
            )

    def _read(self, run_id: str, kind: str) -> list[tuple[str, Any]]:
        query = "SELECT key, value FROM records WHERE run = ? AND kind = ? ORDER BY number"
        with self._database() as database:
            rows = database.execute(query, (run_id, kind)).fetchall()
        return [(key, json.loads(value)) for key, value in rows]

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            with transaction(self.path) as database:
                yield database
        except sqlite3.Error as e:
            raise TrackerBackendError(f"acme: {self.path}: {e}") from e


def create(config: str | None) -> AcmeTracker:
    """Return a new tracker.

    Args:
        config: Path of the database (default: the database of the job table).
    """
    return AcmeTracker(Path(config) if config else acme_home() / "jobs.db")
