"""One guard for all apps of a process, such as the driver of a sweep.

The process and its guard share a file in memory with one slot for each app that runs. A slot is a
record with the app's folder, its id, and a time before which no process of the app started. If the
process dies, the guard ends the apps in the slots. A slot is written before the app's first process
starts, and cleared after the app's end was recorded.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

from torchx_sched_local.store import records
from torchx_sched_local.supervise.guard import Guard, GuardProcess, ParentGuard
from torchx_sched_local.supervise.processes import descriptors
from torchx_sched_local.supervise.processes.replica_processes import ProcessId
from torchx_sched_local.supervise.start_supervisor import python_command

# A slot has the size of a page of memory, so that it never extends over two pages of the file.
_SLOT_BYTES = 4096


class SharedGuard:
    """A guard that ends all apps of this process if this process dies.

    Args:
        on_start: Called with the pid of the guard's process, which this object reaps.
    """

    def __init__(self, on_start: Callable[[int], object]) -> None:
        self._on_start = on_start
        self._file = os.memfd_create("torchx-guard")
        self._guard: GuardProcess | None = None
        self._free: list[int] = []
        self._count = 0
        self._lock = threading.Lock()

    @staticmethod
    def is_possible() -> bool:
        """Return True if this system has files in memory."""
        return hasattr(os, "memfd_create")

    def continue_in_child(self) -> None:
        """Let this process become the guard, and return in a child of it.

        If this process dies, such a guard knows the exit codes of the apps that had ended. If this
        process has other threads, which a child would lack, or cannot be forked, do nothing.
        """
        if threading.active_count() > 1:
            return
        with contextlib.suppress(OSError):
            command = python_command("guard-slots", str(self._file))
            self._guard = ParentGuard(command, self._file)

    def add(self, folder: str, app_id: str, began: int) -> Slot | Guard:
        """Guard an app from now on; if a slot is too short for its record, start a separate guard.

        Args:
            folder: The app's folder.
            app_id: The app's id.
            began: A time, as :func:`process_table.now`, before which no process of the app started.

        Raises:
            OSError: The guard cannot be started.
        """
        record = records.encode([folder, app_id, began])
        if len(record) > _SLOT_BYTES:
            return Guard(folder, app_id, began)
        with self._lock:
            if self._free:
                number = self._free.pop()
            else:
                number, self._count = self._count, self._count + 1
            try:
                os.pwrite(self._file, record, number * _SLOT_BYTES)
                process = self._running_guard()
            except BaseException:
                self._clear(number)
                raise
        return Slot(self, number, process, ("reap", folder, app_id, str(began)))

    def clear(self, number: int) -> None:
        """Clear the slot of an app that has ended."""
        with self._lock:
            self._clear(number)

    def dismiss(self) -> None:
        """End the guard if no app runs."""
        with self._lock:
            if len(self._free) < self._count:
                return  # the guard ends these apps when this process ends
            guard, self._guard = self._guard, None
        if guard is not None:
            guard.dismiss()
            guard.wait()

    def _clear(self, number: int) -> None:
        # A zero as the first byte makes the record invalid.
        os.pwrite(self._file, b"\0", number * _SLOT_BYTES)
        self._free.append(number)

    def _running_guard(self) -> ProcessId:
        """Return the guard's process; start another guard if the last one was killed."""
        if self._guard is None or not self._guard.is_alive():
            command = python_command("reap-slots", str(self._file))
            self._guard = GuardProcess(command, self._file)
            self._on_start(self._guard.process.pid)
        return self._guard.process


class Slot:
    """The protection of one app by a :class:`SharedGuard`.

    It has those methods of :class:`Guard` that a supervision calls.

    Args:
        shared: The guard.
        number: The number of the app's slot.
        process: The guard's process.
        reap: The arguments of :func:`python_command` for the program that ends the app.
    """

    def __init__(
        self, shared: SharedGuard, number: int, process: ProcessId, reap: tuple[str, ...]
    ) -> None:
        self.process = process
        self._shared = shared
        self._number = number
        self._reap = reap

    def dismiss(self) -> None:
        """Clear the slot, because the app has ended; may be called more than once."""
        number, self._number = self._number, -1
        if number >= 0:
            self._shared.clear(number)

    def end_app(self) -> None:
        """Run the program with which the guard ends the app, and wait for its end."""
        import subprocess

        command = python_command(*self._reap)
        subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, check=False)
        self.dismiss()

    def wait(self) -> None:
        """Return at once, because the guard continues until the last app has ended."""


def reap_slots(file: int) -> None:
    """End the apps in the slots of a file, all at the same time.

    Args:
        file: Descriptor of the file.
    """
    from torchx_sched_local.batches.batch_index import folder_at
    from torchx_sched_local.supervise.reap import reap

    slots = _read_slots(file)
    descriptors.raise_limit(len(slots) * 8)
    threads = [
        threading.Thread(target=reap, args=(folder_at(folder), app_id, began))
        for folder, app_id, began in slots
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read_slots(file: int) -> list[Any]:
    slots = []
    for offset in range(0, os.fstat(file).st_size, _SLOT_BYTES):
        try:
            slots.append(records.decode(os.pread(file, _SLOT_BYTES, offset).split(b"\n")[0]))
        except ValueError:
            continue  # an empty slot, or one that was not written completely
    return slots
