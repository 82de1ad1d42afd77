"""The folder of a batch on disk.

::

    <log_dir>/<session>/<batch_id>/
        .torchx/batch.json  the data that all apps have in common; written once
        .torchx/elements    the name, arguments and variables of each app, one app on each line
        .torchx/slots       a slot of SLOT_BYTES for each app, with the app's events
        <batch_id>-<k>/     the folder of the app with number k: stdout.log, stderr.log,
                            combined.log, error.json; and the link .ended, if the app's end
                            could not be written into the slot

The first record of a slot has the position of the app's line in ``elements``. The other records are
events, as in the journal of an app that is not part of a batch. Unused bytes are zeros. The last
byte of a slot is the mark of a cancelled app. Room for slots is reserved before the slots are used,
so that the end and the cancellation of an app can be recorded on a full disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from torchx_kit.logs.streams import write_all
from torchx_sched_local.store import records
from torchx_sched_local.store.app_files import AppFiles
from torchx_sched_local.store.layout import PRIVATE

SLOT_BYTES = 1024
#: How many bytes of a slot are for records. The last byte is the mark of a cancelled app.
ROOM_BYTES = SLOT_BYTES - 1

_VERSION = 1
_HEADER = f"{PRIVATE}/batch.json"
_ELEMENTS = f"{PRIVATE}/elements"
_SLOTS = f"{PRIVATE}/slots"
_CANCELLED = b"C"
_LARGEST_HEADER = 1 << 28
# The number of apps for which room is reserved at once.
_RESERVED = 256
# This cache has the last header that was read, because listing apps needs it once for each app.
_headers: dict[tuple[str, int, int], dict[str, Any]] = {}


class BatchFiles:
    """The files of a batch.

    Args:
        path: Path of the batch's folder.

    Attributes:
        path: Path of the batch's folder.
        files: Opens the files in the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.files = AppFiles(path)
        self._held: dict[str, int] = {}
        self._reserved = 0

    @staticmethod
    def is_batch(path: str) -> bool:
        """Return True if a path is the folder of a batch."""
        return os.path.isfile(os.path.join(path, _HEADER))

    @property
    def slots(self) -> str:
        """Path of the file with the slots."""
        return os.path.join(self.path, _SLOTS)

    # -- The methods below create, change and delete the files.

    def create(self, session: str, header: dict[str, Any]) -> None:
        """Create the folder, write the header of the batch, and keep the files open.

        Args:
            session: Name of the session's folder. If the new folder's parent has this name, the
                parent must belong to this user or root, and others must not be able to write to it.
            header: The data that the apps have in common, as :meth:`read_header` returns it, but
                without ``version``.

        Raises:
            OSError: The folder cannot be created or written.
            UnsafeFolderError: Another user controls the session's folder.
        """
        self.files.create(session)
        flags = os.O_RDWR | os.O_CREAT
        self._held[_ELEMENTS] = self.files.open(_ELEMENTS, flags | os.O_APPEND)
        self._held[_SLOTS] = self.files.open(_SLOTS, flags)
        self.files.write(_HEADER, records.encode({"version": _VERSION, **header}))

    def reserve(self, number: int) -> None:
        """Reserve room for the slot of an app.

        Raises:
            OSError: The disk is full.
        """
        if number >= self._reserved:
            count = number + _RESERVED
            os.posix_fallocate(self._held[_SLOTS], 0, count * SLOT_BYTES)
            self._reserved = count

    def append_element(self, data: Any) -> tuple[int, int]:
        """Append the record of an app to ``elements``; return its position and size in bytes.

        Raises:
            OSError: The record cannot be written.
        """
        fd = self._held[_ELEMENTS]
        record = records.encode(data)
        position = os.fstat(fd).st_size
        try:
            write_all(fd, record)
        except OSError:
            os.ftruncate(fd, position)
            raise
        return position, len(record)

    def write_slot(self, number: int, position: int, data: bytes) -> None:
        """Write into the slot of an app.

        Args:
            number: The app's number.
            position: Where to write, in bytes from the start of the slot.
            data: The bytes.

        Raises:
            OSError: The slot cannot be written.
        """
        held = self._held.get(_SLOTS)
        if held is not None:
            os.pwrite(held, data, number * SLOT_BYTES + position)
            return
        with self._opened(_SLOTS, os.O_RDWR) as fd:
            os.pwrite(fd, data, number * SLOT_BYTES + position)

    def mark_cancelled(self, number: int) -> None:
        """Mark an app as cancelled.

        Raises:
            OSError: The mark cannot be written.
        """
        self.write_slot(number, ROOM_BYTES, _CANCELLED)

    def clear_slot(self, number: int) -> None:
        """Clear the slot of an app, which then does not exist any more.

        Raises:
            OSError: The slot cannot be written.
        """
        self.write_slot(number, 0, bytes(SLOT_BYTES))

    def close(self) -> None:
        """Close the files; may be called more than once."""
        held, self._held = self._held, {}
        for fd in held.values():
            os.close(fd)
        self.files.close()

    def delete(self) -> None:
        """Delete the folder.

        Raises:
            OSError: A file cannot be deleted.
        """
        self.files.delete(PRIVATE, f"{PRIVATE}.deleted")

    # -- The methods below read or open the files.

    def read_header(self) -> dict[str, Any] | None:
        """Return the data that the apps have in common, or None if it is missing or not valid.

        The keys are ``version``, ``batch_id``, ``session``, ``starter``, ``appdef``,
        ``fail_together`` and ``template``, the data of a
        :class:`~torchx_sched_local.batches.request_template.RequestTemplate`.

        Raises:
            OSError: The file cannot be read.
        """
        try:
            found = self.files.stat(_HEADER)
            key = (self.path, found.st_ino, found.st_mtime_ns)
            data = _headers.get(key)
            if data is None:
                data = records.decode(self.files.read(_HEADER, _LARGEST_HEADER))
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(data, dict) or data.get("version") != _VERSION:
            return None
        _headers.clear()
        _headers[key] = data
        return data

    def read_element(self, position: int, size: int) -> Any:
        """Return the record of an app in ``elements``.

        Args:
            position: The position of the record, in bytes.
            size: The size of the record, in bytes.

        Raises:
            OSError: The file cannot be read.
            ValueError: The record is damaged.
        """
        with self._opened(_ELEMENTS, os.O_RDONLY) as fd:
            return records.decode(os.pread(fd, size, position))

    def read_slot(self, number: int) -> tuple[bytes, bool]:
        """Return the records in the slot of an app, and whether the app was cancelled.

        Raises:
            OSError: The file cannot be read.
        """
        held = self._held.get(_SLOTS)
        if held is None:
            with self._opened(_SLOTS, os.O_RDONLY) as fd:
                data = os.pread(fd, SLOT_BYTES, number * SLOT_BYTES)
        else:
            data = os.pread(held, SLOT_BYTES, number * SLOT_BYTES)
        return data[:ROOM_BYTES].rstrip(b"\0"), data[ROOM_BYTES:] == _CANCELLED

    def is_empty(self) -> bool:
        """Return True if the batch has no app. A folder whose slot is empty is not an app.

        Raises:
            OSError: A file cannot be read.
        """
        with os.scandir(self.path) as entries:
            return not any(entry.name != PRIVATE and self._is_used(entry.name) for entry in entries)

    def _is_used(self, name: str) -> bool:
        number = name.rpartition("-")[2]
        # A file that a user has created counts as an app, so that the batch is not deleted.
        return not number.isdecimal() or bool(self.read_slot(int(number))[0])

    def open_slots(self) -> int:
        """Open the file with the slots, and return its descriptor.

        Raises:
            OSError: The file cannot be opened.
        """
        return self.files.open(_SLOTS, os.O_RDWR)

    @contextlib.contextmanager
    def _opened(self, name: str, flags: int) -> Iterator[int]:
        held = self._held.get(name)
        if held is not None:
            yield held
            return
        fd = self.files.open(name, flags)
        try:
            yield fd
        finally:
            os.close(fd)
