"""What is remembered on this machine of submitted jobs: a small JSON file for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from torchx_specs.errors import BackendError
from torchx_specs.home import home_path


class JobEntry(Protocol):
    """A dataclass that describes a job."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    app_id: str


E = TypeVar("E", bound=JobEntry)


class JobIndex(Generic[E]):
    """The jobs submitted by this user from this home.

    Any number of processes may use it at the same time: an entry is replaced as a whole.

    Args:
        subdirs: of ``$TORCHX_HOME``, where the files are
        from_dict: makes an entry from its :func:`dataclasses.asdict`; errors of type and value mean
            that it is none
    """

    def __init__(self, *subdirs: str, from_dict: Callable[[dict[str, Any]], E]) -> None:
        self._folder = home_path(*subdirs)
        self._from_dict = from_dict

    def get(self, app_id: str) -> E | None:
        """Returns the entry of a job, None if there is none."""
        if os.sep in app_id or app_id in ("", ".", ".."):
            return None
        return self._read(f"{app_id}.json")

    def put(self, entry: E) -> None:
        """Enters a job, or writes its entry anew.

        Raises:
            BackendError: it cannot be written
        """
        import json

        from torchx_kit.atomic_files import write_atomically

        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            path = os.path.join(self._folder, f"{entry.app_id}.json")
            write_atomically(path, json.dumps(asdict(entry)))
        except OSError as e:
            raise BackendError(
                f"cannot write to {self._folder}: {e.strerror or e};"
                " set TORCHX_HOME to a folder you can write to"
            ) from None

    def entries(self) -> Iterator[E]:
        """Yields the entries of all jobs, in the order of their ids."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        for name in names:
            if name.endswith(".json"):
                entry = self._read(name)
                if entry is not None:
                    yield entry

    def _read(self, name: str) -> E | None:
        import json

        try:
            with open(os.path.join(self._folder, name), encoding="utf-8") as file:
                return self._from_dict(json.load(file))
        except (OSError, ValueError, TypeError, KeyError):
            return None
