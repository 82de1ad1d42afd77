"""Storage of results by key at an fsspec URL, for programs that report a few numbers.

A trial of a hyper-parameter search stores its metrics under its index, and the search reads them:

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

from .locations import Location, join_below

if TYPE_CHECKING:
    from collections.abc import Mapping

KeyType = int | str
ResultType = int | float | str


class ResultTracker(ABC):
    """Stores a flat mapping of results under each key."""

    @abstractmethod
    def put(self, key: KeyType, **results: ResultType) -> None:
        """Store ``results`` under ``key``; existing results are replaced."""

    @abstractmethod
    def get(self, key: KeyType) -> dict[str, ResultType]:
        """Return the results under ``key``; an empty dictionary if there are none."""

    def __getitem__(self, key: KeyType) -> dict[str, ResultType]:
        return self.get(key)

    def __setitem__(self, key: KeyType, results: Mapping[str, ResultType]) -> None:
        self.put(key, **results)


class FsspecResultTracker(ResultTracker):
    """Stores the results of ``key`` as JSON in the file ``<tracker_base>/<key>``.

    On the local file system, readers see only complete files. On other file systems, a key must not
    be written by several processes at the same time.

    Args:
        tracker_base: An fsspec URL, for example ``/tmp/results`` or ``s3://bucket/results``.
    """

    def __init__(self, tracker_base: str) -> None:
        self._tracker_base = tracker_base

    def put(self, key: KeyType, **results: ResultType) -> None:
        """Store ``results`` under ``key``; existing results are replaced.

        Raises:
            ValueError: ``key`` is empty, or is a path that leaves ``tracker_base``.
            TypeError: JSON cannot represent a value.
        """
        text = json.dumps(results, indent=2)
        with self._location(key).writer() as out:
            out.write(text.encode())

    def get(self, key: KeyType) -> dict[str, ResultType]:
        """Return the results under ``key``; an empty dictionary if there are none.

        Raises:
            ValueError: ``key`` is not valid, or the file does not contain a JSON object.
        """
        location = self._location(key)
        try:
            with location.fs.open(location.path, "rb") as file:
                content = file.read()
        except FileNotFoundError:
            return {}
        try:
            results: Any = json.loads(content)
        except ValueError as error:
            raise ValueError(f"results in {location} are not valid JSON: {error}") from None
        if not isinstance(results, dict):
            raise ValueError(f"results in {location} are not a JSON object")
        return results

    def _location(self, key: KeyType) -> Location:
        base = Location.of(self._tracker_base)
        return Location(base.fs, join_below(base.path, str(key)))
