"""The runs of the configured trackers: parameters, metrics over steps, and artifacts."""

from __future__ import annotations

import asyncio
import math
import mimetypes
import os
import stat
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO

from torchx_dashboard.stream import error_text
from torchx_kit.trackers.recorded import metadata_of_runs
from torchx_runner.default_tracker import readable_trackers
from torchx_specs.errors import RequestError
from torchx_specs.redaction import masked_value
from torchx_tracker.trackers import build_tracker

if TYPE_CHECKING:
    from torchx_specs.trackers.api import TrackerBase

#: How many runs are in one message.
_RUNS = 500
# Longer texts are cut in the table.
_LONGEST = 300
_MOST_MASKED = 2000
# A plot has at most this many points of each metric: a screen has fewer pixels.
_MOST_POINTS = 4000
_MOST_ARTIFACT = 20 << 20
# The page shows artifacts of these types; all others are only offered as downloads, because a
# browser would run the scripts in SVG and HTML.
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/json", "text/plain")
_TEXTS = (".txt", ".log", ".md", ".csv", ".tsv", ".yaml", ".yml", ".toml", ".ini", ".py", ".jsonl")


class Trackers:
    """The configured trackers, created when they are first used."""

    def __init__(self) -> None:
        self._made: dict[str, TrackerBase] = {}

    def get(self, name: str) -> TrackerBase:
        """Return a tracker.

        Raises:
            RequestError: No tracker of this name is configured.
            TrackerError: The tracker cannot be created.
        """
        if name not in self._made:
            configs = readable_trackers()
            if name not in configs:
                raise RequestError(
                    f"no tracker '{name:.100}' is configured; trackers: {', '.join(configs)}"
                )
            self._made[name] = build_tracker(name, configs[name])
        return self._made[name]

    async def messages(self, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield the runs of all trackers in several messages; a failing tracker yields its error.

        Args:
            parameters: Nothing is needed.
        """
        names = list(await asyncio.to_thread(readable_trackers))
        yield {"trackers": names}
        for name in names:
            try:
                chunks = await asyncio.to_thread(self._chunks, name)
                while (rows := await asyncio.to_thread(next, chunks, None)) is not None:
                    yield {"tracker": name, "runs": rows}
            except Exception as e:  # the other trackers are still shown
                yield {"tracker": name, "error": error_text(e)}
        yield {"complete": True}

    def _chunks(self, name: str) -> Iterator[list[dict[str, Any]]]:
        """Yield the runs of a tracker, :data:`_RUNS` at a time."""
        tracker = self.get(name)
        ids = iter(tracker.run_ids())
        while chunk := list(islice(ids, _RUNS)):
            yield [
                {"tracker": name, "id": run_id, "values": shown_values(values)}
                for run_id, values in metadata_of_runs(tracker, chunk).items()
            ]

    def details(self, name: str, run_id: str) -> dict[str, Any]:
        """Return metrics over steps, artifacts and sources of a run.

        Args:
            name: Name of the tracker.
            run_id: Id of the run.
        """
        tracker = self.get(name)
        artifacts = [
            {
                "name": artifact.name,
                "path": artifact.path,
                "type": media_type(artifact.name, artifact.path),
                "metadata": shown_values(artifact.metadata or {}),
                "size": _size(artifact.path),
            }
            for artifact in tracker.artifacts(run_id).values()
        ]
        sources = [
            {"run": source.source_run_id, "artifact": source.artifact_name}
            for source in tracker.sources(run_id)
        ]
        return {
            "id": run_id,
            "values": shown_values(tracker.metadata(run_id)),
            "history": self.history(name, run_id),
            "artifacts": artifacts,
            "sources": sources,
        }

    def history(self, name: str, run_id: str) -> dict[str, list[list[Any]]]:
        """Return steps and values of each metric, thinned out to :data:`_MOST_POINTS` points."""
        found = {}
        for metric, points in self.get(name).history(run_id).items():
            every = max(1, math.ceil(len(points) / _MOST_POINTS))
            kept = [*points[:-1:every], points[-1]] if len(points) > 1 else list(points)
            found[metric] = [
                [shown_value(metric, step) for step, _ in kept],
                [shown_value(metric, value) for _, value in kept],
            ]
        return found

    def open_artifact(self, name: str, run_id: str, artifact: str) -> tuple[BinaryIO, str]:
        """Open an artifact that is a file on this machine; return the file and its type.

        Args:
            name: Name of the tracker.
            run_id: Id of the run.
            artifact: Name of the artifact. Only paths that the tracker has recorded are opened.

        Raises:
            RequestError: The artifact does not exist, is not a regular file here, or is too large.
        """
        found = self.get(name).artifacts(run_id).get(artifact)
        if found is None:
            raise RequestError(f"run '{run_id:.200}' has no artifact '{artifact:.200}'")
        path = _local_path(found.path)
        try:
            # A named pipe must not block the server.
            file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except OSError as e:
            raise RequestError(f"artifact '{found.path:.300}': {e.strerror}") from None
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_ARTIFACT:
            file.close()
            raise RequestError(
                f"artifact '{found.path:.300}': only files of up to"
                f" {_MOST_ARTIFACT >> 20} MB are shown"
            )
        return file, media_type(found.name, found.path)


def shown_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata for JSON: secrets are masked, long texts are cut."""
    return {str(name): shown_value(str(name), value) for name, value in values.items()}


def shown_value(name: str, value: Any) -> Any:
    """Return a value for JSON. A number that is not finite becomes ``NaN`` or ``Infinity``."""
    if isinstance(value, str) and len(value) > _MOST_MASKED:
        value = value[:_MOST_MASKED]  # the search for secrets would take long
    value = masked_value(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 1 << 53:
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def media_type(name: str, path: str) -> str:
    """Return the type by which an artifact is shown; ``application/octet-stream`` is not shown."""
    for text in (path, name):
        if text.lower().endswith(_TEXTS):
            return "text/plain"
        found = mimetypes.guess_type(text)[0]
        if found in _SHOWN:
            return found
    return "application/octet-stream"


def _local_path(path: str) -> str:
    if path.startswith("file://"):
        path = path.removeprefix("file://")
    if "://" in path or not os.path.isabs(path):
        raise RequestError(f"artifact '{path:.300}' is not a file on this machine")
    return path


def _size(path: str) -> int | None:
    try:
        return os.stat(_local_path(path)).st_size
    except (OSError, ValueError):
        return None
