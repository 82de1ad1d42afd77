"""An app on disk: a folder that any process of the same user can read at any time.

::

    <log_dir>/<session>/<app_id>/
        .torchx/app.json       the app; written once, before the first process is started
        .torchx/request.json   the request; written once
        .torchx/journal        the events, a record on each line; only appended to
        .torchx/outcome        room for SUCCESS, reserved before the first process is started
        .torchx/supervisor.log the error output of a supervisor process
        .torchx/active         exists until the app is cancelled, which renames it:
        .torchx/cancelled      exists once the app was cancelled
        <role>/<replica>/      stdout.log, stderr.log, combined.log, error.json
        SUCCESS                exists once the app has ended, whether or not it succeeded

A record has a checksum (:mod:`torchx_sched_local.store.records`). A file that is written once
appears with its complete content. Readers of the journal ignore an incomplete last line.
``$TORCHX_HOME/local/.apps`` has a link to the folder of each app; the name of the link is the app's
id.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable
from typing import Any

from torchx_kit.logs.streams import write_all
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, request_from_dict
from torchx_sched_local.store import records
from torchx_sched_local.store.app_files import AppFiles
from torchx_sched_local.store.app_run import AppRun, Event
from torchx_sched_local.store.layout import NA, PRIVATE, SUCCESS, base_folder
from torchx_sched_local.store.success_file import (
    decode_success,
    encode_success,
    replica_entry,
    room_for,
    state_entry,
)
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState

_APP = f"{PRIVATE}/app.json"
_REQUEST = f"{PRIVATE}/request.json"
_JOURNAL = f"{PRIVATE}/journal"
_OUTCOME = f"{PRIVATE}/outcome"
_SUPERVISOR_LOG = f"{PRIVATE}/supervisor.log"
_ACTIVE = f"{PRIVATE}/active"
_CANCELLED = f"{PRIVATE}/cancelled"
#: Renaming the private folder to this name is the first step that makes a deletion final.
DELETED = f"{PRIVATE}.deleted"
_VERSION = 1
# The largest request of an app has ten thousands of replicas with some KB each.
_LARGEST_FILE = 1 << 30
_LAST_BYTES = 1 << 16
# The file is missing, or there is something else in its place. Other errors may be temporary, for
# example too many open files, or mean that the folder is not safe.
_DAMAGE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.EINVAL,
        errno.ENXIO,
        errno.EFBIG,
        errno.EIO,
    }
)


class AppFolder:
    """The folder of an app.

    Args:
        path: Path of the folder.

    Attributes:
        path: Path of the folder.
        files: Opens the files in the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = AppFiles(path)
        self._fd = -1
        self._unwritten = b""

    @property
    def journal(self) -> str:
        """Path of the journal. In the journal of an ended app, the last event is the end."""
        return os.path.join(self.path, _JOURNAL)

    # -- writing

    def create(self) -> None:
        """Create the folder.

        Raises:
            OSError: The folder cannot be created, or exists already.
        """
        base = base_folder()
        if self.path.startswith(base + os.sep):
            os.makedirs(base, mode=0o700, exist_ok=True)
        self.files.create()
        with self.files.folder() as fd:
            os.mkdir(PRIVATE, 0o700, dir_fd=fd)

    def write(self, app: dict[str, Any], request: PopenRequest, data: dict[str, Any]) -> None:
        """Write the app and its request, reserve room for the outcome, and open the journal.

        Args:
            app: The app, as :meth:`read_app` returns it.
            request: The request.
            data: The request as plain data.

        Raises:
            OSError: A file cannot be written, or there is no room for the outcome.
        """
        self.files.write(_REQUEST, records.encode(data))
        self._reserve_room(room_for(request))
        os.close(self.files.open(_ACTIVE, os.O_WRONLY | os.O_CREAT))
        self.open_journal()
        self.files.write(_APP, records.encode({"version": _VERSION, **app}))

    def open_journal(self) -> None:
        """Open the journal for writing, and create it if it is missing.

        Raises:
            OSError: The journal cannot be opened, or the folder belongs to another user.
        """
        self.files.hold()
        self._fd = self.files.open(_JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND)

    def open_supervisor_log(self) -> int:
        """Open the file for the error output of a supervisor process, and return its descriptor.

        Raises:
            OSError: The file cannot be opened.
        """
        return self.files.open(_SUPERVISOR_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def lock(self, blocking: bool = True) -> None:
        """Lock the journal until it is closed.

        Args:
            blocking: Wait while another process has locked it.

        Raises:
            BlockingIOError: ``blocking`` is False, and another process has locked the journal.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))

    def append(self, events: Iterable[Event]) -> None:
        """Append events to the journal, in one write.

        Events that cannot be written, because the disk is full, are kept for the next call.

        Raises:
            OSError: The events could not be written.
        """
        data = self._unwritten + b"".join(map(records.encode, events))
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

    def complete_last_line(self) -> None:
        """End a line of the journal whose writer died, so that the next event has its own line."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            write_all(self._fd, b"\n")

    def sync(self) -> None:
        """Wait until the journal and the outcome are on the disk.

        Raises:
            OSError: The disk has failed.
        """
        os.fsync(self._fd)
        with contextlib.suppress(FileNotFoundError):
            fd = self.files.open(SUCCESS, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def close(self) -> None:
        """Close the folder and the journal; may be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self.files.close()

    def mark_cancelled(self) -> None:
        """Mark the app as cancelled; its supervisor then records CANCELLED as the final state.

        The mark is a renamed file, so that this works on a full disk.

        Raises:
            OSError: The mark cannot be written.
        """
        try:
            self.files.rename(_ACTIVE, _CANCELLED)
        except FileNotFoundError:
            if not self.is_cancelled():
                os.close(self.files.open(_CANCELLED, os.O_WRONLY | os.O_CREAT))

    def write_success(
        self, run: AppRun, request: PopenRequest, state: AppState, message: str, when: float
    ) -> None:
        """Write the file ``SUCCESS``; see :mod:`torchx_sched_local.store.success_file`.

        The file is written into the room that was reserved for it, and then renamed.

        Args:
            run: The state of the replicas.
            request: The request.
            state: The app's final state.
            message: Why the app is in this state.
            when: When the app ended, in seconds since 1970.

        Raises:
            OSError: The file cannot be written.
        """
        roles = {
            role: [
                {
                    **replica_entry(
                        replica.id,
                        replica.process.pid if replica.process else None,
                        replica.exit_code,
                        param.stdout or NA,
                        param.stderr or NA,
                        param.env.get(ENV_ERROR_FILE, NA),
                    ),
                    **state_entry(replica),
                }
                for replica, param in zip(replicas, request.role_params[role], strict=True)
            ]
            for role, replicas in run.roles.items()
        }
        data = encode_success(self.path, run.app_id, state, when, roles, message, run.num_restarts)
        fd = self.files.open(_OUTCOME, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            write_all(fd, data)
            os.ftruncate(fd, len(data))
        finally:
            os.close(fd)
        self.files.rename(_OUTCOME, SUCCESS)

    def delete(self) -> None:
        """Delete the folder; the record goes last, so that an interrupted deletion can be repeated.

        A part that another process deletes at the same time is not an error.

        Raises:
            OSError: A file cannot be deleted.
        """
        self.files.delete(PRIVATE, DELETED)
        self.close()

    def _reserve_room(self, size: int) -> None:
        fd = self.files.open(_OUTCOME, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, size)
            else:
                write_all(fd, bytes(size))
        finally:
            os.close(fd)

    # -- reading

    def exists(self) -> bool:
        """Return True if this is an app's folder that is not being deleted."""
        return os.path.exists(os.path.join(self.path, PRIVATE))

    def read_app(self) -> dict[str, Any] | None:
        """Return the app, or None if it is missing or damaged.

        The keys are ``app_id``, ``session``, ``name``, ``created``, ``appdef``, ``fail_together``,
        ``starter`` (the process that submitted the app) and ``roles``, with the keys ``name``,
        ``replicas``, ``max_retries`` and ``retry_policy``.

        Raises:
            BackendError: The file cannot be read.
        """
        return self._read(_APP)

    def read_request(self) -> PopenRequest | None:
        """Return the request, or None if it is missing or damaged.

        Raises:
            BackendError: The file cannot be read.
        """
        data = self._read(_REQUEST)
        try:
            return None if data is None else request_from_dict(data)
        except (KeyError, TypeError, AttributeError, ValueError):
            return None  # written by another version

    def is_cancelled(self) -> bool:
        """Return True once the app was cancelled."""
        return self.files.exists(_CANCELLED)

    def read_events(self, position: int) -> tuple[list[Event], int, bool]:
        """Read the journal.

        Args:
            position: Where to start, in bytes.

        Returns:
            The events that follow the position, the position after them, and True if there were
            damaged lines.
        """
        try:
            data = self.files.read_from(_JOURNAL, position, _LARGEST_FILE)
        except OSError:
            return [], position, True
        end = data.rfind(b"\n") + 1
        events, is_damaged = [], False
        for line in data[:end].split(b"\n")[:-1]:
            try:
                events.append(records.decode(line))
            except ValueError:  # a crash of the machine can damage a line
                is_damaged = True
        return events, position + end, is_damaged

    def journal_size(self) -> int:
        """Return the size of the journal in bytes, or -1 if it does not exist."""
        try:
            return os.stat(self.journal).st_size
        except OSError:
            return -1

    def read_end(self) -> tuple[AppState, float] | None:
        """Return the final state and the time of the end, or None while the app has not ended.

        This reads only the end of the journal and, if the app's end is not recorded there, the file
        ``SUCCESS``.
        """
        try:
            fd = self.files.open(_JOURNAL, os.O_RDONLY)
        except OSError:
            last = b""
        else:
            try:
                size = os.fstat(fd).st_size
                last = os.pread(fd, _LAST_BYTES, max(0, size - _LAST_BYTES))
            finally:
                os.close(fd)
        if last.endswith(b"\n"):
            try:
                event = records.decode(last.splitlines()[-1])
                if event[0] == "end":
                    return AppState(event[1]), float(event[-1])
            except (ValueError, LookupError, TypeError):
                pass
        outcome = self.read_success()
        return None if outcome is None else (outcome.state, outcome.last_updated)

    def read_success(self) -> AppRun | None:
        """Return the app's final state by the file ``SUCCESS``, or None if there is none."""
        try:
            return decode_success(self.files.read(SUCCESS, _LARGEST_FILE))
        except (OSError, ValueError):
            return None

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            data = records.decode(self.files.read(name, _LARGEST_FILE))
        except OSError as e:
            if e.errno in _DAMAGE:
                return None
            raise BackendError(
                f"cannot read {os.path.join(self.path, name)}: {e.strerror or e}"
            ) from e
        except ValueError:
            return None  # damaged by a crash of the machine
        return data if isinstance(data, dict) else None
