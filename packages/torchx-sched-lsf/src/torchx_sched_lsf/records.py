"""What is remembered of apps: an index by id, and what each replica says of itself.

The index is in ``$TORCHX_HOME/lsf``. What replicas say is in ``.torchx-lsf/<app id>`` beside the
logs: the hosts may see no home.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.jobs.index import JobIndex
from torchx_specs.errors import RequestError

RECORDS = ".torchx-lsf"
SCRIPT = "torchx-bsub.sh"


@dataclass
class RoleEntry:
    """A role: its name, its name in the names of jobs, and its replicas' job ids."""

    name: str
    job_name: str
    jobs: list[str]


@dataclass
class Entry:
    """An app that was submitted here.

    Args:
        app_id: its id
        name: of the app
        folder: where its logs are
        submitted: when, in epoch seconds
        roles: its roles
        cancelled: somebody has asked for its end
        deleted: it is to be forgotten
    """

    app_id: str
    name: str
    folder: str
    submitted: float = 0.0
    roles: list[RoleEntry] = field(default_factory=list)
    cancelled: bool = False
    deleted: bool = False

    @property
    def record(self) -> str:
        """The folder with what the replicas say."""
        return record_of(self.folder, self.app_id)

    @property
    def jobs(self) -> list[str]:
        """The ids of all jobs."""
        return [job for role in self.roles for job in role.jobs]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Entry:
        """Returns the entry of which ``data`` is the :func:`dataclasses.asdict`."""
        known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__}
        known["roles"] = [RoleEntry(**role) for role in data.get("roles", ())]
        return cls(**known)


@dataclass
class ReplicaRecord:
    """What a replica has said of itself.

    Args:
        restarts: how often its process was started again
        host: where it runs, or ran
        exit_code: as the shell has it, None while it runs
    """

    restarts: int
    host: str
    exit_code: int | None = None


def record_of(folder: str, app_id: str) -> str:
    """Returns the path of an app's record."""
    return os.path.join(folder, RECORDS, app_id)


def replica_file(record: str, role: int, k: int) -> str:
    """Returns the path of what a replica says."""
    return os.path.join(record, f"replica-{role}-{k}")


def replica(record: str, role: int, k: int) -> ReplicaRecord | None:
    """Returns what a replica has said, None if it has said nothing yet."""
    try:
        with open(replica_file(record, role, k), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return None
    words = text.split()
    if not text.endswith("\n") or len(words) < 3:
        return None  # it is being written
    found = ReplicaRecord(int(words[0]), words[1])
    if len(words) >= 5:
        found.exit_code = int(words[4])
    return found


class Index(JobIndex[Entry]):
    """The apps submitted by this user from this home."""

    def __init__(self) -> None:
        super().__init__("lsf", "apps", from_dict=Entry.from_dict)


def make_record(folder: str, app_id: str, text: str) -> str:
    """Makes the record of an app, with its script; returns the script's path.

    Raises:
        RequestError: nothing can be written there
    """
    record = record_of(folder, app_id)
    path = os.path.join(record, SCRIPT)
    try:
        os.makedirs(record, mode=0o700, exist_ok=True)
        write_atomically(path, text)
    except OSError as e:
        raise RequestError(
            f"cannot write to {folder}, the job's folder: {e.strerror or e};"
            " set the option jobdir to a folder that you and the hosts can write to"
        ) from None
    return path


def remove_record(path: str) -> None:
    """Removes a record, and the folder of records if it was the last."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))
