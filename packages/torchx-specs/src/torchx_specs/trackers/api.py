"""The interface of trackers: stores of the artifacts, metadata and lineage of runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from torchx_specs.errors import TrackerError


class TrackerValueError(TrackerError, ValueError):
    """A tracker cannot record or query a value or id; the message names its key, or the problem."""


class TrackerBackendError(TrackerError, RuntimeError):
    """The store of a tracker failed or refused a request; the message names the store."""

    exit_code: ClassVar[int] = 3


@dataclass
class TrackerSource:
    """A run, or one of its artifacts, from which another run was made.

    ``artifact_name`` is None if the whole run is the source.
    """

    source_run_id: str
    artifact_name: str | None


@dataclass
class TrackerArtifact:
    """A named artifact of a run, with its path and its metadata."""

    name: str
    path: str
    metadata: Mapping[str, object] | None


class LineageLink(NamedTuple):
    """One step of a lineage: ``run_id`` was made from ``source_run_id``.

    ``artifact_name`` is the artifact of the source that was used, or None for the whole run.
    """

    run_id: str
    source_run_id: str
    artifact_name: str | None = None


@dataclass
class Lineage:
    """The ancestors and descendants of a run.

    Args:
        run_id: The run.
        sources: Runs and artifacts from which the run was made, the nearest first.
        descendants: Ids of the runs that were made from the run, the nearest first.
        links: The steps between these runs, from which the graph can be drawn.
    """

    run_id: str = ""
    sources: list[TrackerSource] = field(default_factory=list)
    descendants: list[str] = field(default_factory=list)
    links: list[LineageLink] = field(default_factory=list)


class TrackerBase(ABC):
    """A store of the artifacts, metadata and lineage of runs.

    Many processes may write to one run at the same time; each call is recorded completely or not at
    all. Reading a run without records is not an error: it returns empty results.

    Raises:
        TrackerValueError: By any method: a value cannot be recorded.
        TrackerBackendError: By any method: the store failed.
    """

    @abstractmethod
    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact; replace an artifact of the same name."""

    @abstractmethod
    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Return the artifacts of a run by name."""

    @abstractmethod
    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Record key-value pairs; overwrite existing keys."""

    @abstractmethod
    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Return the metadata of a run."""

    @abstractmethod
    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Record that a run was made from another run, or from an artifact of that run."""

    @abstractmethod
    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Return the sources of a run; with ``artifact_name``, only sources with that artifact."""

    @abstractmethod
    def lineage(self, run_id: str) -> Lineage:
        """Return the ancestors and descendants of a run."""

    @abstractmethod
    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Return the ids of all runs, or only of runs that were made from ``parent_run_id``."""

    def history(self, run_id: str) -> Mapping[str, Sequence[tuple[float, float]]]:
        """Return the recorded values of each metric as pairs of step and value, for plots.

        The values of one metric are in the order of their recording. The default is empty: the
        tracker keeps only the last values.
        """
        return {}
