"""The folder of an app of a batch: it contains the logs and the error file, but not the record.

The record of the app is in the batch's files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from torchx_sched_local.batches.batch_files import ROOM_BYTES, SLOT_BYTES, BatchFiles
from torchx_sched_local.batches.request_template import RequestTemplate
from torchx_sched_local.request import PopenRequest
from torchx_sched_local.store import records
from torchx_sched_local.store.app_folder import DAMAGE, AppFolder
from torchx_sched_local.store.app_run import AppRun, Event
from torchx_specs.errors import BackendError
from torchx_specs.model.status import AppState

# The kind of the first record of a slot. This record also has the position and the size of the
# app's record in the file `elements`.
_ELEMENT = "element"
# If events do not fit into a slot, their texts are shortened to the first of these lengths, in
# characters, with which the events fit.
_TEXT_LENGTHS = (300, 100, 50, 25, 0)
# The room in a slot that only the event ``end`` may use, in bytes.
_END_BYTES = 128
# Name of the mark of an ended app whose slot could not be written. The mark is a symbolic link to
# the name of the final state. Most file systems store such a link without a block of the disk.
_ENDED = ".ended"


class BatchAppFolder(AppFolder):
    """The folder of an app that is part of a batch.

    Args:
        path: Path of the app's folder, ``<batch folder>/<batch id>-<number>``.
        batch: The open files of the batch. None opens a file whenever it is needed.
    """

    def __init__(self, path: str, batch: BatchFiles | None = None) -> None:
        super().__init__(path)
        self._app_id = os.path.basename(path)
        self._number = int(self._app_id.rpartition("-")[2])
        self._batch = batch or BatchFiles(os.path.dirname(path))
        # The position of the next event in the slot, in bytes.
        self._position = 0
        # Whether append() was called with an event `end` that is not yet in the slot.
        self._lacks_end = False

    @property
    def journal(self) -> str:
        """Path of the file with the events of all apps of the batch."""
        return self._batch.slots

    # -- The methods below change the folder and the slot.

    def create(self, session: str) -> None:
        """Create the folder in the batch's folder, which must exist.

        Args:
            session: Ignored, because the batch's folder was checked when it was created.

        Raises:
            OSError: The folder cannot be created, or exists already.
        """
        with self._batch.files.folder() as fd:
            self.files.create_in(fd)

    def describe(self, data: dict[str, Any], events: bytes) -> None:
        """Write the name, arguments and variables of this app.

        The app exists once the next :meth:`append` has written its slot.

        Args:
            data: A record with the keys ``name``, ``created``, ``args`` and ``env``; ``env`` has
                only the variables whose values differ from those of the template.
            events: The records of the app's first events.

        Raises:
            OSError: The files cannot be written, for example because the disk is full.
        """
        self._batch.reserve(self._number)
        position, size = self._batch.append_element(data)
        self._unwritten = records.encode([_ELEMENT, position, size]) + events

    def open_journal(self) -> None:
        """Open the file with the slots for writing, and keep it open.

        Raises:
            OSError: The file cannot be opened, or the folder belongs to another user.
        """
        self.files.hold()
        self._fd = self._batch.open_slots()
        self._position = len(self._batch.read_slot(self._number)[0])

    def lock(self, blocking: bool = True) -> None:
        """Lock the slot of this app until :meth:`close`.

        Args:
            blocking: Wait while another process has locked the slot.

        Raises:
            BlockingIOError: ``blocking`` is False, and another process has locked the slot.
        """
        # The fields of `struct flock`: type, whence, start, length and pid.
        lock = struct.pack(
            "hhqqi4x",
            fcntl.F_WRLCK,
            os.SEEK_SET,
            self._number * SLOT_BYTES,
            SLOT_BYTES,
            0,
        )
        # This lock belongs to the descriptor, so it also excludes other threads of this process. A
        # lock of fcntl.lockf() would belong to the process.
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW if blocking else fcntl.F_OFD_SETLK, lock)

    def append(self, events: Iterable[Event]) -> None:
        """Append events to the slot, in one write.

        If the events do not fit, their texts are shortened. Events that still do not fit are
        dropped, except the event ``end``, for which a part of the slot is kept free.

        Raises:
            OSError: The events could not be written; they are kept for the next call. Or the slot
                is damaged and has no room for the event ``end``, which is then dropped.
        """
        events = list(events)
        ends = [event for event in events if event[0] == "end"]
        self._lacks_end |= bool(ends)
        room = ROOM_BYTES - self._position - len(self._unwritten)
        if not ends:
            room -= _END_BYTES
        data = _encode(events, room) or _encode(ends, room)
        self._unwritten += data
        if self._unwritten:
            self._batch.write_slot(self._number, self._position, self._unwritten)
            self._position += len(self._unwritten)
            self._unwritten = b""
            self._lacks_end = bool(ends and not data)
        if ends and not data:
            raise OSError(errno.ENOSPC, "the slot of the app is damaged, and full", self.journal)

    def complete_last_line(self) -> None:
        """End a record whose writer died, so that the next event has its own line."""
        data, _ = self._batch.read_slot(self._number)
        # In a damaged slot without room, the newline would replace the mark of a cancelled app.
        if data and not data.endswith(b"\n") and len(data) < ROOM_BYTES:
            self._batch.write_slot(self._number, len(data), b"\n")
            self._position = len(data) + 1

    def sync(self) -> None:
        """Wait until the slots are on the disk.

        Raises:
            OSError: The disk has failed.
        """
        os.fsync(self._fd)

    def mark_cancelled(self) -> None:
        """Mark the app as cancelled; its supervisor then records CANCELLED as the final state.

        If the replica had succeeded before, the final state is SUCCEEDED.

        Raises:
            OSError: The mark cannot be written.
        """
        self._batch.mark_cancelled(self._number)

    def mark_ended(self, state: AppState) -> bool:
        """Mark the app as ended if its slot has no event ``end``, because a write has failed.

        Return False if the mark cannot be written.
        """
        if not self._lacks_end:
            return True
        try:
            with self.files.folder() as fd:
                os.symlink(state.name, _ENDED, dir_fd=fd)
        except FileExistsError:
            return True
        except OSError:
            return False
        return True

    def write_success(
        self, run: AppRun, request: PopenRequest, state: AppState, message: str, when: float
    ) -> bool:
        """Do nothing, and return False: the apps of a batch have no file ``SUCCESS``."""
        return False

    def delete(self) -> None:
        """Delete the folder and clear the slot; delete the batch if this was its last app.

        Raises:
            OSError: A file cannot be deleted.
        """
        from torchx_sched_local.batches import batch_index

        try:
            self.files.delete("", "")
            self._batch.clear_slot(self._number)
        except FileNotFoundError:
            return
        self.close()
        batch_index.delete_if_unused(self._batch)

    # -- The methods below only read.

    def exists(self) -> bool:
        """Return True if the app exists and is not being deleted."""
        return bool(self._read_slot()[0]) and os.path.isdir(self.path)

    def read_app(self) -> dict[str, Any] | None:
        """Return the app, or None if its record is missing or damaged.

        The keys are those of :meth:`AppFolder.read_app`.

        Raises:
            BackendError: A file cannot be read.
        """
        found = self._read_record()
        if found is None:
            return None
        header, template, element = found
        try:
            appdef = header["appdef"]
            role = {
                **appdef["roles"][0],
                "args": element["args"],
                "env": {**appdef["roles"][0]["env"], **template.environment(element["env"])},
            }
            return {
                "app_id": self._app_id,
                "session": header["session"],
                "name": element["name"],
                "created": element["created"],
                "starter": header["starter"],
                "appdef": {**appdef, "name": element["name"], "roles": [role]},
                "fail_together": header["fail_together"],
                "roles": [
                    {
                        "name": template.role,
                        "replicas": 1,
                        "max_retries": 0,
                        "retry_policy": "APPLICATION",
                    }
                ],
            }
        except (LookupError, TypeError, AttributeError):
            return None  # another version of TorchX may have written the file

    def read_request(self) -> PopenRequest | None:
        """Return the request, or None if its record is missing or damaged.

        Raises:
            BackendError: A file cannot be read.
        """
        found = self._read_record()
        if found is None:
            return None
        _, template, element = found
        try:
            env = template.environment(element["env"])
            return template.request(self._app_id, self.path, element["args"], env)
        except (LookupError, TypeError, AttributeError):
            return None

    def is_cancelled(self) -> bool:
        """Return True once the app was cancelled."""
        return self._read_slot()[1]

    def cancelled_at(self) -> float | None:
        """Return 0 if the app was cancelled, because its slot does not have the time, else None."""
        return 0.0 if self.is_cancelled() else None

    def find_mark(self) -> tuple[AppState, float] | None:
        """Return the state and the time in the mark of an ended app, or None without a mark.

        Only an app whose end could not be written into its slot has a mark.
        """
        try:
            with self.files.folder() as fd:
                state = AppState[os.readlink(_ENDED, dir_fd=fd)]
                return state, os.stat(_ENDED, dir_fd=fd, follow_symlinks=False).st_mtime
        except (OSError, KeyError):
            return None

    def has_outcome(self) -> bool:
        """Return True if the end of the app is recorded."""
        return self.read_end() is not None

    def read_events(self, position: int) -> tuple[list[Event], int, bool]:
        """Read the events in the slot; see :class:`AppFolder`.

        Args:
            position: Where to start, in bytes.
        """
        events, size, is_damaged = records.decode_lines(self._read_slot()[0][position:])
        return events, position + size, is_damaged

    def journal_size(self) -> int:
        """Return how many bytes of the slot are used, or -1 if the app does not exist."""
        return len(self._read_slot()[0]) or -1

    def read_end(self) -> tuple[AppState, float] | None:
        """Return the final state and the time of the end, or None while the app has not ended."""
        for event in reversed(self.read_events(0)[0]):
            with contextlib.suppress(LookupError, TypeError, ValueError):
                if event[0] == "end":
                    return AppState(event[1]), float(event[-1])
        return self.find_mark()

    def read_success(self) -> AppRun | None:
        """Return None: the apps of a batch have no file ``SUCCESS``."""
        return None

    def _read_slot(self) -> tuple[bytes, bool]:
        try:
            return self._batch.read_slot(self._number)
        except OSError:
            return b"", False

    def _read_record(self) -> tuple[dict[str, Any], RequestTemplate, dict[str, Any]] | None:
        """Return the header of the batch, its template, and this app's record in ``elements``.

        The result is None if one of them is missing or damaged.

        Raises:
            BackendError: A file cannot be read.
        """
        events = self.read_events(0)[0]
        try:
            kind, position, size = events[0]
            header = self._batch.read_header() if kind == _ELEMENT else None
            if header is None:
                return None
            element = self._batch.read_element(position, size)
            return header, RequestTemplate(header["template"]), element
        except (LookupError, ValueError, TypeError):
            return None  # damaged by a crash of the machine
        except OSError as e:
            if e.errno in DAMAGE:
                return None
            raise BackendError(f"cannot read {self._batch.path}: {e.strerror or e}") from e


def _encode(events: Sequence[Event], room: int) -> bytes:
    """Return the records of events, with shortened texts if needed; empty if they do not fit.

    Args:
        events: The events.
        room: How many bytes the records may have.
    """
    data = b"".join(map(records.encode, events))
    for length in _TEXT_LENGTHS:
        if len(data) <= room:
            return data
        data = b"".join(records.encode(_shortened(event, length)) for event in events)
    return data if len(data) <= room else b""


def _shortened(event: Event, length: int) -> Event:
    """Shorten the texts of an event ``exit`` or ``end``; return any other event unchanged."""
    if event[0] not in ("exit", "end"):
        return event
    kind, *values = event
    return [kind, *(value[:length] if isinstance(value, str) else value for value in values)]
