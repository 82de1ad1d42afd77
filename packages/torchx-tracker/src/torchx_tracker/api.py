"""The run of a job, and the trackers that record it.

Nothing here is a dataclass, and the contract of trackers is imported for type checkers only: a job
that has no trackers should not pay for them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from torchx_specs.settings import (
    ENV_TORCHX_JOB_ID,
    ENV_TORCHX_PARENT_RUN_ID,
    ENV_TORCHX_TRACKERS,
)

if TYPE_CHECKING:
    from torchx_specs.trackers.api import Lineage, TrackerBase

R = TypeVar("R")

#: Seconds after which a failing tracker costs the job more than its warning.
_SLOW_FAILURE = 1.0
#: The id of a run whose environment does not name one.
UNDEFINED_RUN_ID = "<UNDEFINED>"


class AppRunTrackableSource:
    """A run, or one of its artifacts, that this run was made from.

    Args:
        parent: the run
        artifact_name: its artifact, None for the run as a whole
    """

    __match_args__ = ("parent", "artifact_name")

    def __init__(self, parent: AppRun, artifact_name: str | None) -> None:
        self.parent = parent
        self.artifact_name = artifact_name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppRunTrackableSource):
            return NotImplemented
        return (self.parent, self.artifact_name) == (other.parent, other.artifact_name)

    __hash__ = None  # type: ignore[assignment] # like the run it holds

    def __repr__(self) -> str:
        return (
            f"AppRunTrackableSource(parent={self.parent!r}, artifact_name={self.artifact_name!r})"
        )


class AppRun:
    """A run of a job, recorded by any number of trackers.

    What is added goes to all of them; what is read comes from the first that answers. A tracker
    that fails is reported once, as a warning, and the job goes on; with ``TORCHX_TRACKER_STRICT=1``
    in the environment its error is raised instead. A tracker that takes seconds to fail, such as
    one whose server is gone, is left alone for ten times as long, so that it never gets more than a
    tenth of the job's time.

    Args:
        id: the run's id, which for a launched job is its handle
        backends: the trackers
    """

    __match_args__ = ("id", "backends")

    def __init__(self, id: str, backends: Iterable[TrackerBase]) -> None:
        self.id = id
        self.backends = list(backends)
        self._reported: set[int | str] = set()
        self._left_alone: dict[int, float] = {}

    @staticmethod
    @lru_cache(maxsize=1)
    def run_from_env() -> AppRun:
        """Returns the run that this process belongs to, the same object each time.

        Reads ``TORCHX_JOB_ID``, ``TORCHX_TRACKERS``, ``TORCHX_TRACKER_<NAME>_CONFIG`` and
        ``TORCHX_PARENT_RUN_ID``; the parent is recorded as a source of the run. Outside of a job
        the id is ``<UNDEFINED>``.

        Raises:
            TrackerError: ``TORCHX_TRACKER_STRICT=1``, and a tracker cannot be made or fails, or the
                run has no id
        """
        run_id = os.environ.get(ENV_TORCHX_JOB_ID) or UNDEFINED_RUN_ID
        if not os.environ.get(ENV_TORCHX_TRACKERS, "").strip():
            return AppRun(run_id, [])
        from torchx_specs.trackers.lookup import trackers_from_environ

        run = AppRun(run_id, trackers_from_environ())
        if run_id == UNDEFINED_RUN_ID:
            run._report_missing_id()
        parent = os.environ.get(ENV_TORCHX_PARENT_RUN_ID)
        if parent:
            run.add_source(parent)
        return run

    def job_id(self) -> str:
        """Returns the run's id."""
        return self.id

    def add_metadata(self, /, **kwargs: object) -> None:
        """Records key-value pairs; a key that exists is replaced.

        ``self`` and ``run_id`` are no keys: trackers have parameters of these names.
        """
        self._tell_all(lambda tracker: _add_metadata(tracker, self.id, kwargs))

    def add_artifact(
        self, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Records an artifact; one of the same name is replaced.

        Args:
            name: what it is known by in this run
            path: where it lies
            metadata: what else is known of it
        """
        self._tell_all(lambda tracker: tracker.add_artifact(self.id, name, path, metadata))

    def add_source(self, source_id: str, artifact_name: str | None = None) -> None:
        """Records that this run was made from another.

        Args:
            source_id: the id of the other run
            artifact_name: the artifact of it that was used, None for the run as a whole
        """
        self._tell_all(lambda tracker: tracker.add_source(self.id, source_id, artifact_name))

    def sources(self) -> Iterable[AppRunTrackableSource]:
        """Returns what this run was made from."""
        found = self._ask_first(lambda tracker: list(tracker.sources(self.id))) or ()
        return [
            AppRunTrackableSource(AppRun(source.source_run_id, self.backends), source.artifact_name)
            for source in found
        ]

    def children(self) -> Iterable[AppRun]:
        """Returns the runs that were made from this one."""
        found = self._ask_first(lambda tracker: list(tracker.run_ids(parent_run_id=self.id))) or ()
        return [AppRun(run_id, self.backends) for run_id in found]

    def lineage(self) -> Lineage:
        """Returns all that this run was made from, and all that was made from it."""
        from torchx_specs.trackers.api import Lineage

        return self._ask_first(lambda tracker: tracker.lineage(self.id)) or Lineage(self.id)

    def _tell_all(self, call: Callable[[TrackerBase], None]) -> None:
        for number, tracker in enumerate(self.backends):
            begun = monotonic()
            if self._left_alone.get(number, 0.0) > begun:
                continue
            try:
                call(tracker)
            except Exception as e:
                self._failed(number, tracker, e)
                took = monotonic() - begun
                if took > _SLOW_FAILURE:
                    self._left_alone[number] = begun + 10 * took

    def _ask_first(self, call: Callable[[TrackerBase], R]) -> R | None:
        for number, tracker in enumerate(self.backends):
            try:
                return call(tracker)
            except Exception as e:
                self._failed(number, tracker, e)
        return None

    def _failed(self, number: int, tracker: TrackerBase, error: Exception) -> None:
        """Raises where the job wants to know; otherwise warns, once for a tracker that is down.

        What a tracker cannot record is the job's own mistake: each one is told once.
        """
        import logging

        from torchx_specs.trackers.api import TrackerValueError
        from torchx_specs.trackers.lookup import is_strict

        if is_strict():
            raise error
        mistake = isinstance(error, TrackerValueError)
        key = str(error) if mistake else number
        if key in self._reported:
            return
        self._reported.add(key)
        logging.getLogger("torchx_tracker").warning(
            "not recorded by %s: %s%s",
            tracker,
            error if mistake else f"{type(error).__name__}: {error}",
            "" if mistake else " (the job goes on; further failures of it are not reported)",
        )

    def _report_missing_id(self) -> None:
        import logging

        from torchx_specs.errors import TrackerError
        from torchx_specs.trackers.lookup import is_strict

        message = (
            f"{ENV_TORCHX_TRACKERS} is set and {ENV_TORCHX_JOB_ID} is not: there is no id to record"
            f" this run under"
        )
        if is_strict():
            raise TrackerError(message)
        logging.getLogger("torchx_tracker").warning("%s, '%s' is used", message, self.id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppRun):
            return NotImplemented
        return (self.id, self.backends) == (other.id, other.backends)

    __hash__ = None  # type: ignore[assignment] # its fields can change

    def __repr__(self) -> str:
        return f"AppRun(id={self.id!r}, backends={self.backends!r})"


def app_run_from_env() -> AppRun:
    """Returns the run that this process belongs to; see :meth:`AppRun.run_from_env`."""
    return AppRun.run_from_env()


def _add_metadata(tracker: TrackerBase, run_id: str, pairs: Mapping[str, object]) -> None:
    taken = [key for key in ("self", "run_id") if key in pairs]
    if taken:
        from torchx_specs.trackers.api import TrackerValueError

        raise TrackerValueError(f"'{taken[0]}' cannot be a key of metadata: choose another name")
    tracker.add_metadata(run_id, **pairs)
