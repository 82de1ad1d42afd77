"""The run of a job, and the trackers that record it.

To start jobs without trackers quickly, this module defines no dataclasses and does not import the
trackers' interface before it is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from torchx_specs.once import once
from torchx_specs.settings import (
    ENV_TORCHX_ATTEMPT,
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_PARENT_RUN_ID,
    ENV_TORCHX_RESTART_REASON,
    ENV_TORCHX_RESUME_DIR,
    ENV_TORCHX_TRACKERS,
)

if TYPE_CHECKING:
    from torchx_specs.trackers.api import Lineage, TrackerBase

R = TypeVar("R")

#: If a failing write takes longer than this, in seconds, later writes skip the tracker for a while.
_SLOW_FAILURE = 1.0
#: Id of the run if the environment has no ``TORCHX_JOB_ID``.
UNDEFINED_RUN_ID = "<UNDEFINED>"


class AppRunTrackableSource:
    """A source of a run: another run, or one of its artifacts.

    Args:
        parent: The run that is the source.
        artifact_name: Name of the artifact that is the source, or None for the run as a whole.
    """

    __match_args__ = ("parent", "artifact_name")

    def __init__(self, parent: AppRun, artifact_name: str | None) -> None:
        self.parent = parent
        self.artifact_name = artifact_name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppRunTrackableSource):
            return NotImplemented
        return (self.parent, self.artifact_name) == (other.parent, other.artifact_name)

    __hash__ = None  # type: ignore[assignment] # runs are mutable

    def __repr__(self) -> str:
        return (
            f"AppRunTrackableSource(parent={self.parent!r}, artifact_name={self.artifact_name!r})"
        )


class AppRun:
    """A run of a job, recorded by any number of trackers.

    Writes go to all trackers; reads return the result of the first tracker that does not fail. If a
    tracker fails, one warning is logged and the job continues. With ``TORCHX_TRACKER_STRICT=1`` in
    the environment, the error is raised instead.

    If a failing write took more than a second, for example because the server is down, later writes
    skip the tracker for ten times as long as that write took. Failing writes thus take at most a
    tenth of the job's time.

    Args:
        id: Id of the run; the app handle, if a launcher started the job.
        backends: The trackers.
        clock: Function that returns a time in seconds.
    """

    __match_args__ = ("id", "backends")

    def __init__(
        self,
        id: str,
        backends: Iterable[TrackerBase],
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.id = id
        self.backends = list(backends)
        self._reported: set[int | str] = set()
        self._clock = clock
        self._paused_until: dict[int, float] = {}

    @staticmethod
    @once
    def run_from_env() -> AppRun:
        """Return the run of this process, the same object on each call.

        The run is described by ``TORCHX_JOB_ID``, ``TORCHX_TRACKERS``,
        ``TORCHX_TRACKER_<NAME>_CONFIG`` and ``TORCHX_PARENT_RUN_ID``; the parent is recorded as a
        source of the run. Outside of a job the id is ``<UNDEFINED>``.

        In an app with the option ``requeue``, the metadata ``attempt``, ``restart_reason`` and
        ``resume_step`` (the newest committed step) describe the newest attempt.

        Raises:
            TrackerError: ``TORCHX_TRACKER_STRICT=1`` is set, and a tracker cannot be created or
                fails, or the run has no id.
        """
        run_id = os.environ.get(ENV_TORCHX_JOB_ID) or UNDEFINED_RUN_ID
        if not os.environ.get(ENV_TORCHX_TRACKERS, "").strip():
            return AppRun(run_id, [])
        from torchx_tracker.trackers import trackers_from_environ

        run = AppRun(run_id, trackers_from_environ())
        if run_id == UNDEFINED_RUN_ID:
            run._report_missing_id()
        parent = os.environ.get(ENV_TORCHX_PARENT_RUN_ID)
        if parent:
            run.add_source(parent)
        if attempt := os.environ.get(ENV_TORCHX_ATTEMPT):
            run._record_attempt(int(attempt))
        return run

    def _record_attempt(self, number: int) -> None:
        from torchx_kit.jobs.attempts import committed_step

        values = {
            "attempt": number,
            "restart_reason": os.environ.get(ENV_TORCHX_RESTART_REASON),
            "resume_step": committed_step(os.environ.get(ENV_TORCHX_RESUME_DIR)),
        }
        self.add_metadata(**{key: value for key, value in values.items() if value is not None})

    def job_id(self) -> str:
        """Return the id of the run."""
        return self.id

    def add_metadata(self, /, **kwargs: object) -> None:
        """Record key-value pairs; an existing key is replaced.

        ``self`` and ``run_id`` are not valid keys, because trackers have parameters with these
        names.
        """
        self._call_all(lambda tracker: _add_metadata(tracker, self.id, kwargs))

    def add_artifact(
        self, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Record an artifact; an existing artifact with the same name is replaced.

        Args:
            name: Name of the artifact in this run.
            path: Path or URL of the artifact.
            metadata: Key-value pairs that describe the artifact.
        """
        self._call_all(lambda tracker: tracker.add_artifact(self.id, name, path, metadata))

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """Record that this run was made from another run.

        Args:
            source_id: Id of the other run.
            artifact_name: Name of the other run's artifact that was used, or None for the run as a
                whole.
        """
        self._call_all(lambda tracker: tracker.add_source(self.id, source_id, artifact_name))

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Return the sources of this run."""
        found = self._call_first(lambda tracker: list(tracker.sources(self.id))) or ()
        return [
            AppRunTrackableSource(AppRun(source.source_run_id, self.backends), source.artifact_name)
            for source in found
        ]

    def children(self) -> Iterable[AppRun]:
        """Return the runs that were made from this run."""
        found = self._call_first(lambda tracker: list(tracker.run_ids(parent_run_id=self.id))) or ()
        return [AppRun(run_id, self.backends) for run_id in found]

    def lineage(self) -> Lineage:
        """Return all ancestors and descendants of this run."""
        from torchx_specs.trackers.api import Lineage

        return self._call_first(lambda tracker: tracker.lineage(self.id)) or Lineage(self.id)

    def _call_all(self, call: Callable[[TrackerBase], None]) -> None:
        for number, tracker in enumerate(self.backends):
            start = self._clock()
            if self._paused_until.get(number, 0.0) > start:
                continue
            try:
                call(tracker)
            except Exception as e:
                self._failed(number, tracker, e)
                took = self._clock() - start
                if took > _SLOW_FAILURE:
                    self._paused_until[number] = start + 10 * took

    def _call_first(self, call: Callable[[TrackerBase], R]) -> R | None:
        for number, tracker in enumerate(self.backends):
            try:
                return call(tracker)
            except Exception as e:
                self._failed(number, tracker, e)
        return None

    def _failed(self, number: int, tracker: TrackerBase, error: Exception) -> None:
        """Raise the error in strict mode, otherwise log a warning.

        A failing tracker is reported once. A value that cannot be recorded is an error of the job,
        so each such error is reported.
        """
        import logging

        from torchx_kit.trackers.lookup import is_strict
        from torchx_specs.trackers.api import TrackerValueError

        if is_strict():
            raise error
        invalid_value = isinstance(error, TrackerValueError)
        key = str(error) if invalid_value else number
        if key in self._reported:
            return
        self._reported.add(key)
        logging.getLogger("torchx_tracker").warning(
            "not recorded by %s: %s%s",
            tracker,
            error if invalid_value else f"{type(error).__name__}: {error}",
            ""
            if invalid_value
            else " (the job continues; further failures of this tracker are not reported)",
        )

    def _report_missing_id(self) -> None:
        import logging

        from torchx_kit.trackers.lookup import is_strict
        from torchx_specs.errors import TrackerError

        message = (
            f"{ENV_TORCHX_TRACKERS} is set but {ENV_TORCHX_JOB_ID} is not, so this run has no id;"
            f" set {ENV_TORCHX_JOB_ID}"
        )
        if is_strict():
            raise TrackerError(message)
        logging.getLogger("torchx_tracker").warning("%s (recording it as '%s')", message, self.id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppRun):
            return NotImplemented
        return (self.id, self.backends) == (other.id, other.backends)

    __hash__ = None  # type: ignore[assignment] # runs are mutable

    def __repr__(self) -> str:
        return f"AppRun(id={self.id!r}, backends={self.backends!r})"


def app_run_from_env() -> AppRun:
    """Return the run of this process; see :meth:`AppRun.run_from_env`."""
    return AppRun.run_from_env()


def _add_metadata(tracker: TrackerBase, run_id: str, pairs: Mapping[str, object]) -> None:
    reserved = [key for key in ("self", "run_id") if key in pairs]
    if reserved:
        from torchx_specs.trackers.api import TrackerValueError

        raise TrackerValueError(
            f"'{reserved[0]}' is not a valid metadata key: trackers reserve it; use another name"
        )
    tracker.add_metadata(run_id, **pairs)
