"""An app on disk: a folder that any process of the same user can read at any time.

::

    <log_dir>/<session>/<app_id>/
        .torchx/journal        all records of the app, one on each line; only appended to
        .torchx/room           room for the records of the app's end, reserved before the start
        .torchx/supervisor.log the error output of a supervisor process
        <role>/<replica>/      stdout.log, stderr.log, combined.log, error.json
        SUCCESS                exists once the app has ended, whether or not it succeeded; TorchX
                               does not read its content

The supervisor of an app and its guard hold a lock (``flock``) on the journal. An app whose end is
not recorded and whose journal is not locked has lost both; the next process that reads the app
records its end.

The journal begins with two records, the app and its request; events follow. A record has a checksum
(:mod:`torchx_sched_local.store.records`). Several processes append to the journal. Each of them
writes a newline before its records, so that a record that is incomplete because its writer died
damages no other one. Readers skip damaged records, and ignore an incomplete last line.
``$TORCHX_HOME/local/.apps`` has a link to the folder of each app; the name of the link is the app's
id.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx_kit.logs.streams import write_all
from torchx_sched_local.request import (
    ENV_ERROR_FILE,
    PopenRequest,
    request_from_dict,
    request_to_dict,
)
from torchx_sched_local.store import records
from torchx_sched_local.store.app_files import AppFiles, closing_fd, delete_content, open_own
from torchx_sched_local.store.app_run import AppRun, Event
from torchx_sched_local.store.layout import NA, PRIVATE, SUCCESS
from torchx_sched_local.supervise.processes.process_table import NO_DESCRIPTOR
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState, is_terminal

_JOURNAL = f"{PRIVATE}/journal"
_ROOM = f"{PRIVATE}/room"
# The beginning of the record of the request, which is decoded when it is needed.
_REQUEST = b'["request",'
#: The name of the private folder while an app is deleted. An app with this folder does not exist
#: any more.
DELETED = f"{PRIVATE}.deleted"
# Larger files are not read. A request may have tens of thousands of replicas with some KB each.
_LARGEST_FILE = 1 << 30
# How many bytes a replica needs in both files without its paths, and the app needs.
_REPLICA_BYTES = 900
_APP_BYTES = 8192
# How many characters of a replica's reason the file has.
_LONGEST_REASON = 200
_LONGEST_MESSAGE = 1000
_FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors that mean that a file is missing, or that something else is in its place. Other errors may
# be temporary, for example too many open files, or mean that the folder is not safe.
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


class AppFolder(AppFiles):
    """The folder of an app, with its journal.

    Args:
        path: Path of the folder.
        journal: Descriptor of the locked journal, from :meth:`fileno` of the process that has
            started this one; -1 if the journal is not open.

    Attributes:
        path: Path of the folder.
    """

    def __init__(self, path: str, journal: int = -1) -> None:
        super().__init__(path)
        self._journal_fd = journal
        self._unwritten = b""
        # Up to here, this process has read or written the journal itself.
        self._seen = 0

    @property
    def journal(self) -> str:
        """Path of the journal. Once the app has ended, the last event in it is ``end``."""
        return os.path.join(self.path, _JOURNAL)

    # -- The methods below change the folder.

    def begin_journal(self, app: dict[str, Any], request: PopenRequest) -> None:
        """Reserve room for the app's end, and begin the journal with the app and its request.

        Args:
            app: The data of an :class:`AppRun`.
            request: The request.

        Raises:
            OSError: The journal cannot be written, or there is no room for the app's end.
        """
        room = _room_for(request)
        with closing_fd(self.open(_ROOM, os.O_WRONLY | os.O_CREAT)) as fd:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(fd, 0, room)
            else:
                write_all(fd, bytes(room))
        self.open_journal()
        self.append(["app", app, app["created"]])
        self.append(["request", request_to_dict(request), app["created"]])

    def open_journal(self, blocking: bool = True) -> None:
        """Open the journal for writing, create it if it is missing, and lock it.

        The folder stays open until :meth:`close`, so that nobody can replace it.

        The processes that inherit the descriptor share the lock: the submitting process, the
        supervisor and its guard. The kernel releases the lock when the last of them has closed the
        descriptor or has died.

        Args:
            blocking: Wait while another process has locked the journal.

        Raises:
            BlockingIOError: ``blocking`` is False, and another process has locked the journal.
            OSError: The journal cannot be opened or locked, or the folder belongs to another user.
        """
        if self._fd < 0:
            self._fd = open_own(self.path, self.path)
        if self._journal_fd < 0:
            self._journal_fd = self.open(_JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            fcntl.flock(self._journal_fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))

    def fileno(self) -> int:
        """Return the descriptor of the open journal, for a process that shares the lock."""
        return self._journal_fd

    def add(self, events: Iterable[Event]) -> None:
        """Add events, which :meth:`flush` writes to the journal."""
        self._unwritten += b"".join(map(records.encode, events))

    def flush(self) -> None:
        """Write the added events to the journal, in one write.

        Events that cannot be written, for example on a full disk, are kept for the next call.

        Raises:
            OSError: The events could not be written.
        """
        if not self._unwritten:
            return
        data = b"\n" + self._unwritten
        write_all(self._journal_fd, data)
        self._unwritten = b""
        if os.fstat(self._journal_fd).st_size == self._seen + len(data):
            self._seen += len(data)  # no other process has written

    def append(self, *events: Event) -> None:
        """Write events to the journal, after those that were added before; see :meth:`flush`."""
        self.add(events)
        self.flush()

    def new_cancellations(self) -> list[Event]:
        """Return the events ``cancel`` that other processes have appended since the last call."""
        try:
            size = os.fstat(self._journal_fd).st_size
            if size == self._seen or size > _LARGEST_FILE:
                return []
            if size < self._seen:  # the journal was damaged
                self._seen = 0
            data = os.pread(self._journal_fd, size - self._seen, self._seen)
        except OSError:
            return []  # the journal is closed, or its disk is defective
        events, end, _ = records.decode_lines(data, _REQUEST)
        self._seen += end
        return [event for event in events if isinstance(event, list) and event[:1] == ["cancel"]]

    def sync(self) -> None:
        """Wait until the journal and the outcome are on the disk.

        Raises:
            OSError: The disk has failed.
        """
        os.fsync(self._journal_fd)
        with (
            contextlib.suppress(FileNotFoundError),
            closing_fd(self.open(SUCCESS, os.O_RDONLY)) as fd,
        ):
            os.fsync(fd)

    def close(self) -> None:
        """Close the folder and the journal; may be called more than once."""
        fd, self._journal_fd = self._journal_fd, -1
        if fd >= 0:
            os.close(fd)
        super().close()

    def mark_cancelled(self, k: int | None = None) -> None:
        """Record the cancellation of the app; its supervisor then records CANCELLED as its state.

        If all replicas had succeeded before, the final state is SUCCEEDED. On a full disk, the
        record takes some of the room that is reserved for the app's end.

        Args:
            k: The index of an element of an array, which alone is cancelled; None means the app.

        Raises:
            OSError: The cancellation cannot be recorded.
        """
        data = b"\n" + records.encode(["cancel", k, time.time()])
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with closing_fd(self.open(_JOURNAL, flags)) as fd:
            try:
                write_all(fd, data)
            except OSError as e:
                if e.errno not in _FULL:
                    raise
                self.release_room()
                write_all(fd, data)

    def release_room(self) -> None:
        """Release the room that is reserved for the app's end; may be called more than once."""
        with contextlib.suppress(OSError):
            self.remove(_ROOM)

    def write_success(self, run: AppRun, state: AppState, message: str, when: float) -> None:
        """Write the file ``SUCCESS``; see :func:`encode_success`.

        If the file cannot be written, the journal has the same information.

        Args:
            run: The state of the replicas. Without a request, the file is not written.
            state: The app's final state.
            message: Why the app is in this state.
            when: When the app ended, in seconds since 1970.
        """
        if run.request is None:
            return
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
                    "state": (
                        replica.state if is_terminal(replica.state) else AppState.CANCELLED
                    ).name,
                    "reason": replica.reason[:_LONGEST_REASON],
                    "restarts": replica.restarts,
                }
                for replica, param in zip(replicas, run.request.role_params[role], strict=True)
            ]
            for role, replicas in run.roles.items()
        }
        data = encode_success(self.path, run.app_id, state, when, roles, message, run.num_restarts)
        with contextlib.suppress(OSError):
            self.write_file(SUCCESS, data, 0o644)

    def delete(self) -> None:
        """Delete the folder, and the journal in it last: another call can then finish the deletion.

        The journal's folder is renamed before its content is deleted; after that, the app no longer
        exists. A part that another process deletes at the same time is not an error.

        Raises:
            OSError: A file cannot be deleted.
        """
        with contextlib.suppress(FileNotFoundError):
            with self.folder() as fd:
                delete_content(fd, {PRIVATE, DELETED})
                with contextlib.suppress(OSError):
                    os.rename(PRIVATE, DELETED, src_dir_fd=fd, dst_dir_fd=fd)
                delete_content(fd, set())
                identity = os.fstat(fd)
            found = os.stat(self.path, follow_symlinks=False)
            if (found.st_dev, found.st_ino) == (identity.st_dev, identity.st_ino):
                os.rmdir(self.path)
        self.close()

    # -- The methods below only read the folder.

    def exists(self) -> bool:
        """Return True if this is an app's folder that is not being deleted."""
        return os.path.exists(os.path.join(self.path, PRIVATE))

    def read(self) -> tuple[AppRun, int]:
        """Read the whole journal.

        If the record of the app is damaged, its roles come from the request or from the folders of
        the replicas.

        Returns:
            The app's state, and the position up to which the journal was read.

        Raises:
            BackendError: The journal cannot be read, but may be intact.
        """
        try:
            data = self.read_file(_JOURNAL, 0, _LARGEST_FILE)
        except OSError as e:
            if e.errno not in _DAMAGE:
                raise BackendError(f"cannot read {self.journal}: {e.strerror or e}") from e
            data = b""
        events, size, is_damaged = records.decode_lines(data, _REQUEST)
        app = next((e[1] for e in events if isinstance(e, list) and e[:1] == ["app"]), None)
        run = AppRun(app or self._rebuild(events))
        # An intact journal is never empty: it begins with the app.
        run.is_damaged = is_damaged or not size
        run.apply_all(events)
        return run, size

    def _rebuild(self, events: list[Event]) -> dict[str, Any]:
        session = os.path.basename(os.path.dirname(self.path))
        for event in events:
            if isinstance(event, bytes):
                request = request_from_dict(records.decode(event)[1])
                counts = {role: len(params) for role, params in request.role_params.items()}
                return rebuilt_app(request.app_id, counts, session)
        return rebuilt_app(os.path.basename(self.path), self._count_replicas(), session)

    def is_locked(self) -> bool:
        """Return True if a process has locked the journal, so that it will record the app's end.

        If too many files are open to find this out, return True as well.
        """
        try:
            fd = self.open(_JOURNAL, os.O_RDONLY)
        except OSError as e:
            return e.errno in NO_DESCRIPTOR
        with closing_fd(fd):
            try:
                # A shared lock, so that two processes that ask at the same time see no lock.
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
        return False

    def _count_replicas(self) -> dict[str, int]:
        """Return how many folders of replicas each role has, by the name of the role's folder."""
        counts: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.path)):
                with contextlib.suppress(NotADirectoryError):
                    folders = os.listdir(os.path.join(self.path, name))
                    counts[name] = sum(map(str.isdigit, folders))
        return {role: count for role, count in counts.items() if count}

    def read_events(self, position: int) -> tuple[list[Event], int, bool]:
        """Read the events in the journal.

        Args:
            position: Where to start, in bytes.

        Returns:
            The events that follow the position, the position after them, and True if there were
            damaged lines or the journal cannot be read.
        """
        try:
            data = self.read_file(_JOURNAL, position, _LARGEST_FILE)
        except OSError:
            return [], position, True
        events, size, is_damaged = records.decode_lines(data, _REQUEST)
        return events, position + size, is_damaged

    def journal_size(self) -> int:
        """Return the size of the journal in bytes, or -1 if it does not exist."""
        try:
            return os.stat(self.journal).st_size
        except OSError:
            return -1


def rebuilt_app(app_id: str, replicas: Mapping[str, int], session: str = "") -> dict[str, Any]:
    """Return the data of an :class:`AppRun` of which little is known.

    Args:
        app_id: The app's id.
        replicas: The number of replicas of each role.
        session: Name of the session's folder.
    """
    return {
        "app_id": app_id,
        "session": session,
        "name": app_id,
        "created": 0.0,
        "starter": None,
        "appdef": None,
        "fail_together": False,
        # It is not known whether replicas may be restarted: AppRun.may_retry is True.
        "roles": [
            {"name": name, "replicas": count, "max_retries": -1} for name, count in replicas.items()
        ],
        "requeue": False,
        "elements": None,
    }


def _room_for(request: PopenRequest) -> int:
    """Return how many bytes the end of an app needs at most, in ``SUCCESS`` and in the journal.

    The reasons in both files must be short and ASCII.
    """
    size = _APP_BYTES + 2 * len(request.log_dir)
    for role, params in request.role_params.items():
        size += 100 + 6 * len(role)
        for param in params:
            size += _REPLICA_BYTES + 2 * len(param.stdout or "") + len(param.stderr or "")
    return size


def replica_entry(
    replica_id: int, pid: Any, exit_code: int | None, stdout: str, stderr: str, error_file: str
) -> dict[str, Any]:
    """Return the entry of a replica in the file ``SUCCESS``."""
    return {
        "replica_id": replica_id,
        "pid": pid,
        "exitcode": exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "error_file": error_file,
    }


def encode_success(
    folder: str,
    app_id: str,
    state: AppState,
    when: float,
    roles: Mapping[str, Sequence[dict[str, Any]]],
    message: str = "",
    num_restarts: int = 0,
) -> bytes:
    """Return the content of the file ``SUCCESS``.

    Args:
        folder: The app's folder.
        app_id: The app's id.
        state: The app's final state.
        when: When the app ended, in seconds since 1970.
        roles: For each role the entries of its replicas, as :func:`replica_entry` returns them.
        message: Why the app is in this state.
        num_restarts: How many times a replica, a role or the app was restarted.
    """
    data = {
        "app_id": app_id,
        "log_dir": folder,
        "final_state": state.name,
        "last_updated": when,
        "message": message[:_LONGEST_MESSAGE],
        "num_restarts": num_restarts,
        "roles": roles,
    }
    # `default` is needed because in a subclass of the scheduler, a pid may be any object.
    return json.dumps(data, indent=2, default=str).encode()
