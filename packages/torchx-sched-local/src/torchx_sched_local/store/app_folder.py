"""An app on disk: a folder that any process of the same user can read at any time.

::

    <log_dir>/<session>/<app_id>/
        .torchx/app.json       the app; written once
        .torchx/request.json   the request; written once
        .torchx/journal        the events, a JSON array on each line; only appended to
        .torchx/cancelled      exists once the app was cancelled
        <role>/<replica>/      stdout.log, stderr.log, combined.log, error.json
        SUCCESS                exists once the app has ended, whether or not it succeeded

A file that is written once appears with its complete content. Readers of the journal ignore an
incomplete last line. ``$TORCHX_HOME/local/.apps`` has a link to the folder of each app; the name of
the link is the app's id.
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
from torchx_sched_local.store.success_file import replica_entry, write_success_file
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState

_APP = "app.json"
_REQUEST = "request.json"
_JOURNAL = "journal"
_CANCELLED = "cancelled"
_VERSION = 1

# json.dumps would make an encoder for each event.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class AppFolder:
    """The folder of an app.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._private = os.path.join(path, PRIVATE)
        self._fd = -1
        self._unwritten = b""

    @property
    def journal(self) -> str:
        """Path of the journal, whose last event is the app's end."""
        return os.path.join(self._private, _JOURNAL)

    # -- writing

    def create(self) -> None:
        """Create the folder.

        Raises:
            OSError: The folder cannot be created, or exists already.
        """
        base = base_folder()
        if self.path.startswith(base + os.sep):
            os.makedirs(base, mode=0o700, exist_ok=True)
        os.makedirs(self.path)
        os.mkdir(self._private, 0o700)

    def write(self, app: dict[str, Any], request: dict[str, Any]) -> None:
        """Write the app and its request, and open the journal.

        Args:
            app: The app, as :meth:`read_app` returns it.
            request: The request as plain data.

        Raises:
            OSError: A file cannot be written.
        """
        self._write_once(_REQUEST, request)
        self._write_once(_APP, {"version": _VERSION, **app})
        self.open_journal()

    def open_journal(self) -> None:
        """Open the journal for writing, and create it if it is missing."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self.journal, flags, 0o600)

    def lock(self) -> None:
        """Lock the journal until it is closed; wait while another process has locked it."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def append(self, events: Iterable[Event]) -> None:
        """Append events to the journal, in one write.

        Events that cannot be written, because the disk is full, are kept for the next call.

        Raises:
            OSError: The events could not be written.
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
        """Close the journal; may be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def mark_cancelled(self) -> None:
        """Mark the app as cancelled; its supervisor then records CANCELLED as the final state."""
        path = os.path.join(self._private, _CANCELLED)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def write_success(
        self, run: AppRun, request: PopenRequest, state: AppState, when: float
    ) -> None:
        """Write the file ``SUCCESS``; see :mod:`torchx_sched_local.store.success_file`."""
        roles = {
            role: [
                replica_entry(
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
        write_success_file(self.path, run.app_id, state, when, roles)

    def _write_once(self, name: str, data: dict[str, Any]) -> None:
        # json.dumps writes ASCII only, so that bytes that are not UTF-8 are read back unchanged.
        write_atomically(os.path.join(self._private, name), json.dumps(data))

    # -- reading

    def exists(self) -> bool:
        """Return True if this is an app's folder that is not being deleted."""
        return os.path.exists(os.path.join(self._private, _APP))

    def read_app(self) -> dict[str, Any] | None:
        """Return the content of ``app.json``, or None if this is not an app's folder."""
        return _read(os.path.join(self._private, _APP))

    def read_request(self) -> PopenRequest | None:
        """Return the request, or None if it is missing or damaged."""
        data = _read(os.path.join(self._private, _REQUEST))
        return None if data is None else request_from_dict(data)

    def is_cancelled(self) -> bool:
        """Return True once the app was cancelled."""
        return os.path.exists(os.path.join(self._private, _CANCELLED))

    def read_events(self, position: int) -> tuple[list[Event], int]:
        """Return the events that follow a position of the journal, and the position after them."""
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
                continue  # a crash of the machine can damage a line
        return events, position + end

    def journal_size(self) -> int:
        """Return the size of the journal in bytes, or -1 if it does not exist."""
        try:
            return os.stat(self.journal).st_size
        except OSError:
            return -1

    def read_end(self) -> tuple[AppState, float] | None:
        """Return the final state and the time of the end, or None while the app has not ended.

        This reads only the end of the journal.
        """
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
        return None  # damaged by a crash of the machine
    return data if isinstance(data, dict) else None
