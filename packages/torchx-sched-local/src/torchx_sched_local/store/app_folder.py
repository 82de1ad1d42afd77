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
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import make_private
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.logs.streams import write_all
from torchx_sched_local.request import (
    ENV_ERROR_FILE,
    PopenRequest,
    request_from_dict,
    request_to_dict,
)
from torchx_sched_local.store import records
from torchx_sched_local.store.app_run import AppRun, Event, ReplicaRun
from torchx_sched_local.store.layout import NA, PRIVATE, SUCCESS, base_folder
from torchx_sched_local.store.safe_folders import (
    FOLDER_MODE,
    closing_fd,
    delete_content,
    open_own,
    open_parent,
)
from torchx_sched_local.supervise.processes.process_table import NO_DESCRIPTOR
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState

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
        errno.EIO,
    }
)


class AppFolder:
    """The folder of an app: its files, its journal, and the state of the app.

    A supervision writes to the files of an app only through this class. The names of files are
    relative to the folder, or absolute paths. An absolute path outside of the folder, which a
    subclass of the scheduler may use, is opened as it is: the operating system ignores the
    descriptor of the folder then. A FIFO or a link in place of a file is refused.

    Args:
        path: Path of the folder.
        journal: Descriptor of the locked journal, from :meth:`fileno` of the process that has
            started this one; -1 if the journal is not open.

    Attributes:
        path: Path of the folder.
        run: The app's state, from :meth:`begin_journal` or :meth:`read`.
        position: Up to here, this process has read or written the journal itself.
    """

    run: AppRun

    def __init__(self, path: str, journal: int = -1) -> None:
        self.path = path
        self._prefix = path + os.sep
        self._fd = -1
        self._journal_fd = journal
        self._unwritten: list[bytes] = []
        self.position = 0

    @property
    def journal(self) -> str:
        """Path of the journal. Once the app has ended, the last event in it is ``end``."""
        return os.path.join(self.path, _JOURNAL)

    # -- The methods below create, open and close the folder and the journal.

    def create(self, session: str) -> None:
        """Create the folder with the folder ``.torchx`` in it, and keep the outer one open.

        Args:
            session: Name of the session's folder. If the new folder's parent has this name, the
                parent must belong to this user or root, and others must not be able to write to it.

        Raises:
            OSError: The folder cannot be created, or exists already.
            UnsafeFolderError: Another user controls the session's folder; see :func:`open_parent`.
        """
        base = base_folder()
        if self.path.startswith(base + os.sep):
            make_private(base)
        above, name = os.path.split(self.path)
        is_in_session = bool(session) and os.path.basename(above) == session
        with closing_fd(open_parent(above, is_in_session)) as parent:
            try:
                os.mkdir(name, FOLDER_MODE, dir_fd=parent)
                self._fd = open_own(name, self.path, parent)
            except OSError as e:
                e.filename = self.path
                raise
        os.mkdir(PRIVATE, 0o700, dir_fd=self._fd)

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
        self.run = AppRun(app, request)
        created = app["created"]
        self.record(["app", app, created], ["request", request_to_dict(request), created])
        self.flush()

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

    def close(self) -> None:
        """Close the folder and the journal; may be called more than once."""
        open_fds = [fd for fd in (self._journal_fd, self._fd) if fd >= 0]
        self._journal_fd = self._fd = -1
        for fd in open_fds:
            os.close(fd)

    @contextlib.contextmanager
    def folder(self) -> Iterator[int]:
        """Return a context with the descriptor of the folder.

        Raises:
            OSError: The folder cannot be opened.
            UnsafeFolderError: Another user owns the folder or may write to it.
        """
        if self._fd >= 0:
            yield self._fd
        else:
            with closing_fd(open_own(self.path, self.path)) as fd:
                yield fd

    # -- The methods below open and change files.

    def locate(self, path: str) -> tuple[str, int]:
        """Return the arguments ``path`` and ``dir_fd`` with which :mod:`os` opens a file.

        The folder must be held open.
        """
        return path.removeprefix(self._prefix), self._fd

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a regular file, and return its descriptor.

        Raises:
            OSError: The file cannot be opened, or it is a link or not a regular file.
        """
        with self.folder() as fd:
            return open_regular(path.removeprefix(self._prefix), flags, mode, dir_fd=fd)

    def open_log(self, path: str | None) -> FileIO | None:
        """Open a log file for a process, and create it if it is missing; return None for None.

        The process always writes to the end of the file, even if another process writes to the file
        or truncates it.

        Raises:
            OSError: The file cannot be opened, or it is a link or not a regular file.
        """

        def opener(path: str, flags: int) -> int:
            return self.open(path, flags, 0o644)

        return None if path is None else FileIO(path, "ab", opener=opener)

    def rename(self, old: str, new: str) -> None:
        """Rename a file of the folder; a file with the new name is replaced.

        Raises:
            OSError: The file cannot be renamed.
        """
        names = [path.removeprefix(self._prefix) for path in (old, new)]
        with self.folder() as fd:
            os.replace(*names, src_dir_fd=fd, dst_dir_fd=fd)

    def make_folder(self, path: str) -> None:
        """Create a folder inside the app's folder, with missing parents; it must not exist yet.

        Raises:
            OSError: The folder cannot be created.
        """
        name = path.removeprefix(self._prefix)
        with self.folder() as fd:
            try:
                os.mkdir(name, FOLDER_MODE, dir_fd=fd)
            except FileNotFoundError:
                parent = os.path.dirname(name)
                if not parent:
                    raise
                with contextlib.suppress(FileExistsError):
                    self.make_folder(parent)
                os.mkdir(name, FOLDER_MODE, dir_fd=fd)

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

    # -- The methods below change the state of the app, and write to the journal.

    def record(self, *events: Event) -> None:
        """Apply events to the state; :meth:`flush` writes them to the journal.

        A supervision calls this only in the thread of its reactor, once that runs.
        """
        self.run.apply_all(events)
        self._unwritten += map(records.encode, events)

    def record_exit(
        self,
        replica: ReplicaRun,
        state: AppState,
        exit_code: int | None,
        reason: str,
        reaped: int | None = None,
    ) -> None:
        """Record the end of a replica; the arguments are attributes of :class:`ReplicaRun`."""
        self.record(["exit", *replica.index, state.value, exit_code, reason, reaped, time.time()])

    def flush(self) -> None:
        """Write the recorded events to the journal, in one write.

        Events that cannot be written, for example on a full disk, are kept for the next call.

        Raises:
            OSError: The events could not be written.
        """
        if not self._unwritten:
            return
        data = b"".join([b"\n", *self._unwritten])
        write_all(self._journal_fd, data)
        self._unwritten = []
        if os.fstat(self._journal_fd).st_size == self.position + len(data):
            self.position += len(data)  # no other process has written

    def write_end(self, state: AppState, message: str) -> None:
        """Record the end of the app, and write the recorded events and the file ``SUCCESS``.

        The room that is reserved for them is released. ``SUCCESS`` is written first, so that a
        reader who finds the file without the event knows that the journal is damaged.

        Args:
            state: The app's final state.
            message: Why the app is in this state.

        Raises:
            OSError: The events could not be written. If ``SUCCESS`` cannot be written, the journal
                has the same information.
        """
        self.record(["end", state.value, message, time.time()])
        self._release_room()
        self._write_success()
        self.flush()

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
                self._release_room()
                write_all(fd, data)

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

    def _release_room(self) -> None:
        with contextlib.suppress(OSError), self.folder() as fd:
            os.unlink(_ROOM, dir_fd=fd)

    def _write_success(self) -> None:
        run = self.run
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
                    "state": replica.state.name,
                    "reason": replica.reason[:_LONGEST_REASON],
                    "restarts": replica.restarts,
                }
                for replica, param in zip(replicas, run.request.role_params[role], strict=True)
            ]
            for role, replicas in run.roles.items()
        }
        data = encode_success(
            self.path, run.app_id, run.state, run.last_updated, roles, run.msg, run.num_restarts
        )
        with contextlib.suppress(OSError), self.folder() as fd:
            write_atomically(SUCCESS, data, 0o644, dir_fd=fd)

    # -- The methods below only read.

    def exists(self) -> bool:
        """Return True if this is an app's folder that is not being deleted."""
        return os.path.exists(os.path.join(self.path, PRIVATE))

    def read(self) -> AppRun:
        """Read the whole journal, and return the state of the app.

        If the record of the app is damaged, its roles come from the request or from the folders of
        the replicas.

        Raises:
            BackendError: The journal cannot be read, but may be intact.
        """
        self.position = 0
        events, is_damaged = self._read_events()
        app = next((e[1] for e in events if isinstance(e, list) and e[:1] == ["app"]), None)
        self.run = AppRun(app or self._rebuild(events))
        return self._apply(events, is_damaged)

    def update(self) -> AppRun:
        """Apply the events that were added to the journal, and return the state of the app.

        If the journal cannot be read now, for example because too many files are open, the state
        is the known one.
        """
        if self.journal_size() < self.position:
            # The journal was truncated: only what is left of it is known.
            self.run, self.position = AppRun(self.run.data, self.run.request), 0
            self.run.is_damaged = True
        with contextlib.suppress(BackendError):
            self._apply(*self._read_events())
        return self.run

    def read_cancellations(self) -> None:
        """Apply the cancellations that other processes have recorded since the last call."""
        try:
            size = os.fstat(self._journal_fd).st_size
            if size == self.position or size > _LARGEST_FILE:
                return
            if size < self.position:  # the journal was damaged
                self.position = 0
            data = os.pread(self._journal_fd, size - self.position, self.position)
        except OSError:
            return  # the journal is closed, or its disk is defective
        events, end, _ = records.decode_lines(data, _REQUEST)
        self.position += end
        self.run.apply_all(e for e in events if isinstance(e, list) and e[:1] == ["cancel"])

    def _read_events(self) -> tuple[list[Event], bool]:
        """Return the next events in the journal, and whether lines or the file are damaged."""
        try:
            with open(self.open(_JOURNAL, os.O_RDONLY), "rb") as file:
                # A sparse file can be larger than the memory.
                if os.fstat(file.fileno()).st_size - self.position > _LARGEST_FILE:
                    return [], True
                file.seek(self.position)
                data = file.read(_LARGEST_FILE)
        except OSError as e:
            if e.errno not in _DAMAGE:
                raise BackendError(f"cannot read {self.journal}: {e.strerror or e}") from e
            return [], True
        events, size, is_damaged = records.decode_lines(data, _REQUEST)
        self.position += size
        return events, is_damaged

    def _apply(self, events: list[Event], is_damaged: bool) -> AppRun:
        # An intact journal is never empty: it begins with the app.
        self.run.is_damaged |= is_damaged or not self.position
        self.run.apply_all(events)
        return self.run

    def _rebuild(self, events: list[Event]) -> dict[str, Any]:
        session = os.path.basename(os.path.dirname(self.path))
        for event in events:
            if isinstance(event, bytes):
                request = request_from_dict(records.decode(event)[1])
                counts = {role: len(params) for role, params in request.role_params.items()}
                return rebuilt_app(request.app_id, counts, session)
        return rebuilt_app(os.path.basename(self.path), self._count_replicas(), session)

    def _count_replicas(self) -> dict[str, int]:
        """Return how many folders of replicas each role has, by the name of the role's folder."""
        counts: dict[str, int] = {}
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.path)):
                with contextlib.suppress(NotADirectoryError):
                    folders = os.listdir(os.path.join(self.path, name))
                    counts[name] = sum(map(str.isdigit, folders))
        return {role: count for role, count in counts.items() if count}

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
