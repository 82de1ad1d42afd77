"""The contract between a job and a store of its artifacts, metadata and lineage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from torchx_specs.errors import TrackerError


class TrackerValueError(TrackerError, ValueError):
    """Something that a tracker cannot record or ask for; the text names the key."""


class TrackerBackendError(TrackerError, RuntimeError):
    """The store behind a tracker failed, refused or vanished; the text names the store."""

    exit_code: ClassVar[int] = 3


@dataclass
class TrackerSource:
    """A run, or one of its artifacts, that another run was made from."""

    source_run_id: str
    artifact_name: str | None


@dataclass
class TrackerArtifact:
    """A named artifact of a run: where it lies, and what is known of it."""

    name: str
    path: str
    metadata: Mapping[str, object] | None


class LineageLink(NamedTuple):
    """One step of a lineage: ``run_id`` was made from ``source_run_id``.

    ``artifact_name`` is the artifact of the source that was used, None for the run as a whole.
    """

    run_id: str
    source_run_id: str
    artifact_name: str | None = None


@dataclass
class Lineage:
    """Which runs a run comes from, and which came from it.

    Args:
        run_id: the run itself
        sources: what it was made from, the nearest first
        descendants: ids of the runs made from it, the nearest first
        links: every step between these runs, from which the graph can be drawn
    """

    run_id: str = ""
    sources: list[TrackerSource] = field(default_factory=list)
    descendants: list[str] = field(default_factory=list)
    links: list[LineageLink] = field(default_factory=list)


class TrackerBase(ABC):
    """A store of what runs leave behind; runs are known by their id.

    Many processes write to one run at the same time; what one call records appears whole or not at
    all. A run that nothing was recorded of is no error to read: it has nothing.

    Raises:
        TrackerValueError: by any method: what was given cannot be recorded
        TrackerBackendError: by any method: the store failed
    """

    @abstractmethod
    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Records an artifact; one of the same name is replaced."""

    @abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Returns the artifacts of a run by name."""

    @abstractmethod
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Records key-value pairs; a key that exists is replaced."""

    @abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Returns the metadata of a run."""

    @abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Records that a run was made from another run, or from one artifact of it."""

    @abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Returns what a run was made from, only by that artifact if one is named."""

    @abstractmethod
    def lineage(self, run_id: str) -> Lineage:
        """Returns ancestors and descendants of a run."""

    @abstractmethod
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Returns the ids of the runs; ``parent_run_id=...`` only those made from that run."""
