"""An app on disk: one folder, that any process of the same user can read at any time.

::

    <log_dir>/<session>/<app_id>/
        .torchx/app.json       what the app is; written once
        .torchx/request.json   how its processes are started; written once
        .torchx/journal        what happened to it: a JSON array a line, only ever appended to
        .torchx/cancelled      there once somebody has cancelled it
        <role>/<replica>/      stdout.log, stderr.log, combined.log, error.json
        SUCCESS                there once it has ended, however it did

A file that is written once appears under its name when it is complete. Of the journal, a last line
that is not whole yet is not read. ``$TORCHX_HOME/local/.apps`` has a link to the folder of every
app by its id, whatever its ``log_dir``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.logs.streams import write_all
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, request_from_dict
from torchx_sched_local.store.app_run import AppRun, Event
from torchx_sched_local.store.layout import NA, PRIVATE, base_folder
from torchx_sched_local.store.success_file import ended_replica, write_success
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState

_APP = "app.json"
_REQUEST = "request.json"
_JOURNAL = "journal"
_CANCELLED = "cancelled"
_VERSION = 1

# json.dumps would make one for each event
_encode = json.JSONEncoder(separators=(",", ":")).encode


class AppFolder:
    """The folder of one app."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._private = os.path.join(path, PRIVATE)
        self._fd = -1
        self._unwritten = b""

    @property
    def journal(self) -> str:
        """Path of the journal; its last change is the app's end."""
        return os.path.join(self._private, _JOURNAL)

    # -- writing

    def create(self) -> None:
        """Makes the folder.

        Raises:
            OSError: it cannot be made, or is there already
        """
        base = base_folder()
        if self.path.startswith(base + os.sep):
            os.makedirs(base, mode=0o700, exist_ok=True)
        os.makedirs(self.path)
        os.mkdir(self._private, 0o700)

    def write(self, app: dict[str, Any], request: dict[str, Any]) -> None:
        """Writes what the app is and how it is started, and opens the journal."""
        self._write_once(_REQUEST, request)
        self._write_once(_APP, {"version": _VERSION, **app})
        self.open_journal()

    def open_journal(self) -> None:
        """Opens the journal for writing, made if it is missing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self.journal, flags, 0o600)

    def lock(self) -> None:
        """Waits until no other process has locked the journal, and locks it until it is closed."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def append(self, events: Iterable[Event]) -> None:
        """Appends events to the journal, in one write.

        What cannot be written (the disk is full) is kept, and tried again with the next event.

        Raises:
            OSError: it could not be written
        """
        data = self._unwritten + b"".join(_encode(event).encode() + b"\n" for event in events)
        self._unwritten = data
        if not data:
            return
        size = os.fstat(self._fd).st_size
        try:
            write_all(self._fd, data)
        except OSError:
            os.ftruncate(self._fd, size)
            raise
        self._unwritten = b""

    def close(self) -> None:
        """Closes the journal; may be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def mark_cancelled(self) -> None:
        """Notes that the app is to end as cancelled, for whoever supervises it."""
        path = os.path.join(self._private, _CANCELLED)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def write_success(
        self, run: AppRun, request: PopenRequest, state: AppState, when: float
    ) -> None:
        """Writes the file that says how the app ended."""
        roles = {
            role: [
                ended_replica(
                    replica.id,
                    replica.process.pid if replica.process else None,
                    replica.exit_code,
                    param.stdout or NA,
                    param.stderr or NA,
                    param.env.get(ENV_ERROR_FILE, NA),
                )
                for replica, param in zip(replicas, request.role_params[role], strict=True)
            ]
            for role, replicas in run.roles.items()
        }
        write_success(self.path, run.app_id, state, when, roles)

    def _write_once(self, name: str, data: dict[str, Any]) -> None:
        # escapes every byte that is no ASCII, so that odd ones come back as they were
        write_atomically(os.path.join(self._private, name), json.dumps(data))

    # -- reading

    def is_there(self) -> bool:
        """Returns whether this is an app's folder; not while it is being removed."""
        return os.path.exists(os.path.join(self._private, _APP))

    def read_app(self) -> dict[str, Any] | None:
        """Returns what the app is, or None if this is no app's folder."""
        return _read(os.path.join(self._private, _APP))

    def read_request(self) -> PopenRequest | None:
        """Returns how the app's processes are started, or None if nobody knows."""
        data = _read(os.path.join(self._private, _REQUEST))
        return None if data is None else request_from_dict(data)

    def is_cancelled(self) -> bool:
        """Returns True once somebody has cancelled the app."""
        return os.path.exists(os.path.join(self._private, _CANCELLED))

    def read_events(self, position: int) -> tuple[list[Event], int]:
        """Returns the events from ``position`` of the journal on, and the position after them."""
        try:
            with open(self.journal, "rb") as file:
                file.seek(position)
                data = file.read()
        except FileNotFoundError:
            return [], position
        end = data.rfind(b"\n") + 1
        events = []
        for line in data[:end].splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue  # a machine that went down can leave such a line
        return events, position + end

    def journal_size(self) -> int:
        """Returns how long the journal is, in bytes; -1 if there is none."""
        try:
            return os.stat(self.journal).st_size
        except OSError:
            return -1

    def read_end(self) -> tuple[AppState, float] | None:
        """Returns the state in which the app has ended and when, or None; quick."""
        try:
            fd = os.open(self.journal, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            size = os.fstat(fd).st_size
            last = os.pread(fd, 4096, max(0, size - 4096))
        finally:
            os.close(fd)
        lines = last.splitlines()
        if not last.endswith(b"\n") or not lines[-1].startswith(b'["end",'):
            return None
        try:
            event = json.loads(lines[-1])
            return AppState(event[1]), float(event[-1])
        except (ValueError, IndexError):
            return None


def _read(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            data = json.loads(file.read())
    except FileNotFoundError:
        return None
    except OSError as e:
        raise BackendError(f"cannot read {path}: {e.strerror or e}") from e
    except ValueError:
        return None  # left by a machine that went down
    return data if isinstance(data, dict) else None
