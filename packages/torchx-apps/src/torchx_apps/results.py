"""Keyed results on any fsspec location, for programs that report a handful of numbers.

A trial of a hyper-parameter search writes its metrics under its index, and the process that
searches reads them back:

>>> import tempfile
>>> results = FsspecResultTracker(tempfile.mkdtemp())
>>> results[0] = {"loss": 0.25}
>>> results[0]
{'loss': 0.25}
>>> results["no such key"]
{}
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from .locations import Location, joined

if TYPE_CHECKING:
    from collections.abc import Mapping

KeyType = int | str
ResultType = int | float | str


class ResultTracker(ABC):
    """Stores a flat mapping of results under each key."""

    @abstractmethod
    def put(self, key: KeyType, **results: ResultType) -> None:
        """Stores ``results`` under ``key`` in place of what was there."""

    @abstractmethod
    def get(self, key: KeyType) -> dict[str, ResultType]:
        """Returns what is stored under ``key``; empty if nothing is."""

    def __getitem__(self, key: KeyType) -> dict[str, ResultType]:
        return self.get(key)

    def __setitem__(self, key: KeyType, results: Mapping[str, ResultType]) -> None:
        self.put(key, **results)


class FsspecResultTracker(ResultTracker):
    """Keeps the results of ``key`` as JSON in the file ``<tracker_base>/<key>``.

    A reader never sees half a file on a local filesystem. Writers of one key must not overlap on
    other filesystems.

    Args:
        tracker_base: An fsspec location, e.g. ``/tmp/results`` or ``s3://bucket/results``.
    """

    def __init__(self, tracker_base: str) -> None:
        self._tracker_base = tracker_base

    def put(self, key: KeyType, **results: ResultType) -> None:
        """Stores ``results`` under ``key`` in place of what was there.

        Raises:
            ValueError: ``key`` is empty or would lead out of the tracker's base.
            TypeError: A value cannot be written as JSON.
        """
        text = json.dumps(results, indent=2)  # before anything on disk is touched
        with self._location(key).writer() as out:
            out.write(text.encode())

    def get(self, key: KeyType) -> dict[str, ResultType]:
        """Returns what is stored under ``key``; empty if nothing is.

        Raises:
            ValueError: ``key`` is not valid, or the file does not hold a JSON object.
        """
        location = self._location(key)
        try:
            with location.fs.open(location.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return {}
        return self._decoded(content, location)

    def _location(self, key: KeyType) -> Location:
        base = Location.of(self._tracker_base)
        return Location(base.fs, joined(base.path, str(key)))

    @staticmethod
    def _decoded(content: bytes, location: Location) -> dict[str, ResultType]:
        try:
            results: Any = json.loads(content)
        except ValueError as error:
            raise ValueError(f"results in {location} are not JSON: {error}") from None
        if not isinstance(results, dict):
            raise ValueError(f"results in {location} are not a JSON object")
        return results
