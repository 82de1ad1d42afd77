"""Records of submissions: which folder belongs to a handle, or to a submission that has none yet.

A record is written before a job is submitted, so that the job of a client that was killed during
``submit`` is found by the name of its app. Another record, with the handle, replaces it afterwards.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torchx_functions.errors import NoResultError
from torchx_functions.folders import PrivateFolder, open_group
from torchx_kit.home import TORCHX_HOME

logger = logging.getLogger(__name__)

#: The file with the handle of a group, in the folder of the group.
HANDLE = "handle"


@dataclass
class Submission:
    """A ``submit`` or ``map``.

    Args:
        folder: The folder of the group.
        handle: The handle of the app or of the sweep; empty if it is unknown.
        name: The name of the app.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler.
    """

    folder: str
    handle: str = ""
    name: str = ""
    scheduler: str = ""
    cfg: dict[str, Any] = field(default_factory=dict)

    def write(self) -> None:
        """Record the submission by its handle, or by its name without a handle."""
        with _open_records() as records:
            content = json.dumps(asdict(self), default=str).encode()
            records.write(_file_name(self.handle or self.name), content)

    def settle(self, handle: str) -> None:
        """Record the handle of the submission in place of its name."""
        with open_group(self.folder) as group:
            group.write(HANDLE, handle.encode())
        replace(self, handle=handle).write()
        with _open_records() as records:
            records.remove(_file_name(self.name))


def submission_of(handle: str) -> Submission | None:
    """Return the submission with a handle, or None if the handle is not recorded."""
    with suppress(FileNotFoundError), _open_records() as records:
        return Submission(**json.loads(records.read(_file_name(handle))))
    return None


def recorded_submissions() -> Iterator[Submission]:
    """Yield all submissions; delete the records of those whose folders no longer exist."""
    with _open_records() as records:
        for name in records.names():
            try:
                found = Submission(**json.loads(records.read(name)))
            except FileNotFoundError:  # another process has removed it
                continue
            except (NoResultError, TypeError) as e:
                logger.warning("a record of a submission cannot be read: %s", e)
                continue
            if os.path.isdir(found.folder):
                yield found
            else:
                records.remove(name)


def _open_records() -> PrivateFolder:
    TORCHX_HOME("functions")  # only the last folder of a path gets mode 0700, so create this first
    return PrivateFolder(str(TORCHX_HOME("functions", "submissions")), 1)


def _file_name(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
