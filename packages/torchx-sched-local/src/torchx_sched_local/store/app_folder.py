"""An app on disk: a folder that any process of the same user can read at any time.

::

    <log_dir>/<session>/<app_id>/
        .torchx/app.json       the app; written once, before the first process is started
        .torchx/request.json   the request and a copy of app.json; written once
        .torchx/journal        the events, a record on each line; only appended to
        .torchx/outcome        room for SUCCESS, reserved before the first process is started
        .torchx/supervisor.log the error output of a supervisor process
        .torchx/active         the mark of an app that is neither cancelled nor ended
        .torchx/cancelled      the mark of a cancelled app; ``active`` is renamed to this name
        .torchx/cancelled.K    the mark of a cancelled element of an array
        .torchx/ended.STATE    the mark of an ended app; ``active`` is renamed to this name
        <role>/<replica>/      stdout.log, stderr.log, combined.log, error.json
        SUCCESS                exists once the app has ended, whether or not it succeeded

A record has a checksum (:mod:`torchx_sched_local.store.records`). A file that is written once
appears with its complete content. The first event in the journal is another copy of ``app.json``;
both copies lack the submitted app. Readers of the journal ignore an incomplete last line.
``$TORCHX_HOME/local/.apps`` has a link to the folder of each app; the name of the link is the app's
id.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from typing import Any

from torchx_kit.logs.streams import write_all
from torchx_sched_local.request import ENV_ERROR_FILE, PopenRequest, request_from_dict
from torchx_sched_local.store import records
from torchx_sched_local.store.app_files import AppFiles
from torchx_sched_local.store.app_run import AppRun, Event
from torchx_sched_local.store.layout import NA, PRIVATE, SUCCESS
from torchx_sched_local.store.success_file import (
    decode_success,
    encode_success,
    replica_entry,
    room_for,
    state_entry,
)
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState, is_terminal

_APP = f"{PRIVATE}/app.json"
_REQUEST = f"{PRIVATE}/request.json"
_JOURNAL = f"{PRIVATE}/journal"
_OUTCOME = f"{PRIVATE}/outcome"
_SUPERVISOR_LOG = f"{PRIVATE}/supervisor.log"
_ACTIVE = f"{PRIVATE}/active"
_CANCELLED = f"{PRIVATE}/cancelled"
_ENDED = {state: f"{PRIVATE}/ended.{state.name}" for state in AppState if is_terminal(state)}
#: The name of the private folder while an app is deleted. An app with this folder does not exist
#: any more.
DELETED = f"{PRIVATE}.deleted"
_VERSION = 1
# Larger files are not read. A request may have tens of thousands of replicas with some KB each.
_LARGEST_FILE = 1 << 30
_LAST_BYTES = 1 << 16
#: Errors that mean that a file is missing, or that there is something else in its place. Other
#: errors may be temporary, for example too many open files, or mean that the folder is not safe.
DAMAGE = frozenset(
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
        """Path of the journal. Once the app has ended, the last event in it is ``end``."""
        return os.path.join(self.path, _JOURNAL)

    # -- The methods below change the folder.

    def create(self, session: str) -> None:
        """Create the folder.

        Args:
            session: Name of the session's folder. If the parent of the new folder has this name, no
                other user may control the parent.

        Raises:
            OSError: The folder cannot be created, or exists already.
            UnsafeFolderError: Another user controls the session's folder.
        """
        self.files.create(session)

    def write(self, app: dict[str, Any], request: PopenRequest, data: dict[str, Any]) -> None:
        """Write the app and its request, reserve room for the outcome, and open the journal.

        Args:
            app: The app, as :meth:`read_app` returns it.
            request: The request.
            data: The request as plain data.

        Raises:
            OSError: A file cannot be written, or there is no room for the outcome.
        """
        copy = {key: value for key, value in app.items() if key != "appdef"}
        self.files.write(_REQUEST, records.encode({**data, "app": copy}))
        self._reserve_room(room_for(request))
        os.close(self.files.open(_ACTIVE, os.O_WRONLY | os.O_CREAT))
        self.open_journal()
        self.append([["app", copy, app["created"]]])
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
            blocking: Wait while another process has locked the journal.

        Raises:
            BlockingIOError: ``blocking`` is False, and another process has locked the journal.
        """
        fcntl.flock(self._fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))

    def append(self, events: Iterable[Event]) -> None:
        """Append events to the journal, in one write.

        Events that cannot be written, for example on a full disk, are kept for the next call.

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
        """Append a newline if the journal's last line is incomplete because its writer died."""
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

    def mark_cancelled(self, k: int | None = None) -> None:
        """Mark the app as cancelled; its supervisor then records CANCELLED as the final state.

        If all replicas had succeeded before, the final state is SUCCEEDED. The mark is a renamed
        file, so that this works on a full disk.

        Args:
            k: The index of an element of an array, which alone is cancelled; None means the app.

        Raises:
            OSError: The mark cannot be written.
        """
        if k is not None:
            os.close(self.files.open(f"{_CANCELLED}.{k}", os.O_WRONLY | os.O_CREAT))
            return
        try:
            self.files.rename(_ACTIVE, _CANCELLED)
        except FileNotFoundError:
            if not self.is_cancelled():
                os.close(self.files.open(_CANCELLED, os.O_WRONLY | os.O_CREAT))

    def mark_ended(self, state: AppState) -> bool:
        """Mark the app as ended, with its final state; return False if the mark cannot be written.

        The mark is a renamed file. So it can be written on a full disk, and the state is known even
        if the journal and ``SUCCESS`` are damaged. A cancelled app keeps the mark of its
        cancellation, unless it had succeeded before.
        """
        is_cancelled = self.is_cancelled()
        if is_cancelled and state != AppState.SUCCEEDED:
            return True
        try:
            self.files.rename(_CANCELLED if is_cancelled else _ACTIVE, _ENDED[state])
        except OSError:
            return False
        return True

    def write_success(
        self, run: AppRun, request: PopenRequest, state: AppState, message: str, when: float
    ) -> bool:
        """Write the file ``SUCCESS``; see :mod:`torchx_sched_local.store.success_file`.

        The file is written into the room that was reserved for it, and then renamed.

        Args:
            run: The state of the replicas.
            request: The request.
            state: The app's final state.
            message: Why the app is in this state.
            when: When the app ended, in seconds since 1970.

        Returns:
            False if apps of this kind have no such file.

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
        return True

    def delete(self) -> None:
        """Delete the folder, and the record in it last: another call can then finish the deletion.

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

    # -- The methods below only read the folder.

    def exists(self) -> bool:
        """Return True if this is an app's folder that is not being deleted."""
        return os.path.exists(os.path.join(self.path, PRIVATE))

    def read_app(self) -> dict[str, Any] | None:
        """Return the app, or None if it is missing or damaged.

        The keys are ``app_id``, ``session``, ``name``, ``created``, ``appdef``, ``fail_together``,
        ``starter`` (the process that submitted the app) and ``roles``. Each role has the keys
        ``name``, ``replicas``, ``max_retries`` and ``retry_policy``. An array also has the key
        ``elements``, the names of its elements.

        Raises:
            BackendError: The file cannot be read.
        """
        return self._read(_APP)

    def read_copies(self) -> Iterator[dict[str, Any]]:
        """Yield the copies of ``app.json`` in other records; their key ``appdef`` is None.

        Raises:
            BackendError: A file cannot be read.
        """
        request = self._read(_REQUEST)
        first = [event[1] for event in self.read_events(0)[0] if event[:1] == ["app"]]
        for copy in [request and request.get("app"), *first]:
            if isinstance(copy, dict):
                yield {**copy, "appdef": None}

    def count_replicas(self) -> dict[str, int]:
        """Return how many folders of replicas each role has, by the name of the role's folder."""
        counts: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.path)):
                with contextlib.suppress(NotADirectoryError):
                    folders = os.listdir(os.path.join(self.path, name))
                    counts[name] = sum(map(str.isdigit, folders))
        return {role: count for role, count in counts.items() if count}

    def read_request(self) -> PopenRequest | None:
        """Return the request, or None if it is missing or damaged.

        Raises:
            BackendError: The file cannot be read.
        """
        data = self._read(_REQUEST)
        try:
            return None if data is None else request_from_dict(data)
        except (KeyError, TypeError, AttributeError, ValueError):
            return None  # another version of TorchX may have written the file

    def is_cancelled(self, k: int | None = None) -> bool:
        """Return True once the app, or the element with index ``k``, was cancelled."""
        return self.files.exists(_CANCELLED) or (
            k is not None and self.files.exists(f"{_CANCELLED}.{k}")
        )

    def cancelled_at(self) -> float | None:
        """Return when the app was cancelled, in seconds since 1970; None if it was not cancelled.

        The value is 0 if the time is not known.
        """
        try:
            # mark_cancelled() renames a file; that sets st_ctime.
            return self.files.stat(_CANCELLED).st_ctime
        except OSError:
            return 0.0 if self.is_cancelled() else None

    def find_mark(self) -> tuple[AppState, float] | None:
        """Return the state and the time in the mark of an ended app, or None without a mark.

        A cancelled app has no such mark, unless it had succeeded before the cancellation.
        """
        for state, name in _ENDED.items():
            with contextlib.suppress(OSError):
                return state, self.files.stat(name).st_mtime
        return None

    def has_outcome(self) -> bool:
        """Return True if the names of files show that the app has ended; do not read the files."""
        if self.files.exists(SUCCESS) or self.find_mark() is not None:
            return True
        # `outcome` exists from before the start until it is renamed to SUCCESS at the app's end.
        try:
            self.files.stat(_OUTCOME)
        except FileNotFoundError:
            return True
        except OSError:
            pass  # for example too many open files
        return False

    def read_events(self, position: int) -> tuple[list[Event], int, bool]:
        """Read the journal.

        Args:
            position: Where to start, in bytes.

        Returns:
            The events that follow the position, the position after them, and True if there were
            damaged lines or the journal cannot be read.
        """
        try:
            data = self.files.read_from(_JOURNAL, position, _LARGEST_FILE)
        except OSError:
            return [], position, True
        events, size, is_damaged = records.decode_lines(data)
        return events, position + size, is_damaged

    def journal_size(self) -> int:
        """Return the size of the journal in bytes, or -1 if it does not exist."""
        try:
            return os.stat(self.journal).st_size
        except OSError:
            return -1

    def read_end(self) -> tuple[AppState, float] | None:
        """Return the final state and the time of the end, or None while the app has not ended.

        This reads only the end of the journal and, if the app's end is not recorded there, the file
        ``SUCCESS`` and the mark of the end.
        """
        last = b""
        # A defective disk fails in pread(). Other records have the end, too.
        with contextlib.suppress(OSError):
            fd = self.files.open(_JOURNAL, os.O_RDONLY)
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
        return self.find_mark() if outcome is None else (outcome.state, outcome.last_updated)

    def read_success(self) -> AppRun | None:
        """Return the final state in the file ``SUCCESS``; None if it is missing or damaged."""
        try:
            return decode_success(self.files.read(SUCCESS, _LARGEST_FILE))
        except (OSError, ValueError):
            return None

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            data = records.decode(self.files.read(name, _LARGEST_FILE))
        except OSError as e:
            if e.errno in DAMAGE:
                return None
            raise BackendError(
                f"cannot read {os.path.join(self.path, name)}: {e.strerror or e}"
            ) from e
        except ValueError:
            return None  # damaged by a crash of the machine
        return data if isinstance(data, dict) else None
