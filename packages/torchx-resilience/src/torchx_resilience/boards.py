"""Boards: small values that each rank can write and all ranks can read.

A board promises only that a written value becomes visible some time later. Values do not become
visible in the order in which they were written, because caches of network file systems may keep
old listings of a folder.
"""

from __future__ import annotations

import os

from torchx_resilience.errors import ResilienceError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The errors of a board that cannot be read or written at the moment.
BOARD_ERRORS = (OSError, RuntimeError)


def write_file(path: str, text: str, folder: str) -> None:
    """Create or replace a private file at once, so that no reader sees a part of the text.

    Args:
        path: The file.
        text: The text.
        folder: A folder of the same file system, for the new file until it is complete.
    """
    temporary = os.path.join(folder, f"new-{os.urandom(8).hex()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(temporary, path)


class FileBoard:
    """A board that is a folder with a file for each key.

    Each method of a board may raise one of :data:`BOARD_ERRORS`. No method waits for other ranks.

    A listing tells whether a key is set. For a path that did not exist before, NFS clients may
    remember for a minute that it does not exist; they check a folder when it is opened.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        write_file(os.path.join(self._folder, key), value, self._folder)

    def get(self, keys: list[str]) -> list[str] | None:
        """Return the values of keys, or None if one of them is not set."""
        if not set(os.listdir(self._folder)).issuperset(keys):
            return None
        values = []
        for key in keys:
            with open(os.path.join(self._folder, key), encoding="utf-8") as file:
                values.append(file.read())
        return values


class StoreBoard:
    """A board in a ``Store`` of ``torch.distributed``."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        self._store.set(key, value)

    def get(self, keys: list[str]) -> list[str] | None:
        """Return the values of keys, or None if one of them is not set."""
        return [self._store.get(key).decode() for key in keys] if self._store.check(keys) else None


#: The boards of an attempt.
Board = FileBoard | StoreBoard


def connect_store(distributed: Any, seconds: float) -> Any:
    """Return a connection of its own to the store of the process group, or None.

    A request on a store's connection waits for other requests on it. If the script waits in its
    connection for another rank, for example while it creates a communicator, the agreement on a
    stop must go on. So it has its own connection, which also needs no private name of PyTorch.

    Args:
        distributed: The module ``torch.distributed``.
        seconds: How long to try to connect.

    Returns:
        The store; None if ``MASTER_ADDR`` or ``MASTER_PORT`` is not set, because the process group
        was then not initialised from the environment.

    Raises:
        ResilienceError: There is no store at this address.
    """
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not address or not port:
        return None
    from datetime import timedelta

    try:
        return distributed.TCPStore(
            address,
            int(port),
            is_master=False,
            wait_for_workers=False,
            timeout=timedelta(seconds=seconds),
        )
    except (RuntimeError, ValueError) as error:
        raise ResilienceError(
            f"no store of torch.distributed at MASTER_ADDR={address}, MASTER_PORT={port}: {error}"
        ) from error
