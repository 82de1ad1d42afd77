"""Opens the folders of apps, and refuses a folder that another user controls.

The option ``log_dir`` may name a folder that other users may write to. Another user can then create
the folders below it first, or replace one of them by a link, at any time. So each folder below
``log_dir`` is opened relative to the descriptor of the folder above, and checked once it is open.

The checks depend on the content of a folder. In a folder that only contains folders of apps, other
users may create files, but must not rename those folders: a sticky folder, as /tmp is, is safe. In
the folder of an app, a file of another user could pass for a record, so a sticky folder is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

#: The mode of new folders: nobody else may write to them, whatever the umask is.
FOLDER_MODE = 0o755
#: The flags that open a folder but not a link to one.
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0


class UnsafeFolderError(PermissionError):
    """A folder is a link, or another user owns it or may write to it."""


def open_own(path: str) -> int:
    """Open a folder of this user, and return its descriptor.

    Raises:
        OSError: The folder cannot be opened.
        UnsafeFolderError: The folder is a link, or another user owns it or may write to it.
    """
    return _open_own(path, path, None)


def create_own(path: str, levels: int) -> int:
    """Create a folder, and return its descriptor.

    Args:
        path: The path of the folder, which must not exist.
        levels: How many of the folders above are the scheduler's own; see :func:`open_parent`.

    Raises:
        OSError: The folder exists or cannot be created.
        UnsafeFolderError: One of the scheduler's own folders is a link, another user owns it, or
            other users may rename files in it.
    """
    parent = open_parent(os.path.dirname(path), levels)
    try:
        return create_in(parent, path)
    finally:
        os.close(parent)


def create_in(parent: int, path: str) -> int:
    """Create a folder in an open folder, and return its descriptor.

    Args:
        parent: The descriptor of the folder above.
        path: The path of the folder, which must not exist.

    Raises:
        OSError: The folder exists or cannot be created.
    """
    name = os.path.basename(path)
    try:
        os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        return _open_own(name, path, parent)
    except OSError as e:
        e.filename = path
        raise


def open_parent(path: str, levels: int) -> int:
    """Open the folder in which a new folder is created; create missing folders.

    Args:
        path: The path of the folder to open.
        levels: How many of the last names in the path are the scheduler's own folders. Each of them
            must belong to this user or to root. The user has chosen the folder above them, which
            may be a link and may belong to anybody.

    Returns:
        A descriptor.

    Raises:
        OSError: A folder cannot be created or opened.
        UnsafeFolderError: One of the scheduler's own folders is a link, another user owns it, or
            other users may rename files in it.
    """
    if levels <= 0:
        with contextlib.suppress(FileExistsError):  # if the path is a file, os.open() fails below
            os.makedirs(path, exist_ok=True)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    above, name = os.path.split(path)
    parent = open_parent(above, levels - 1)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        fd = _open(name, path, parent)
    finally:
        os.close(parent)
    try:
        _check_owner(fd, path, {os.geteuid(), _ROOT})
        _protect(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_own(name: str, path: str, parent: int | None) -> int:
    fd = _open(name, path, parent)
    try:
        _check_owner(fd, path, {os.geteuid()})
        # A sticky folder is refused, too: other users could create records in it.
        if os.fstat(fd).st_mode & _OTHERS_MAY_WRITE:
            raise _unsafe(path, "other users may write to it")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open(name: str, path: str, parent: int | None) -> int:
    """Open a folder by its name in a parent folder; ``path`` is for messages."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=parent)
    except OSError as e:
        if e.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise _unsafe(path, "it is a link, or not a folder") from e


def _check_owner(fd: int, path: str, owners: set[int]) -> None:
    owner = os.fstat(fd).st_uid
    if owner not in owners:
        raise _unsafe(path, f"it belongs to the user with the id {owner}")


def _protect(fd: int, path: str) -> None:
    """Make a folder of this user writable by this user only, if others can rename files in it.

    Raises:
        UnsafeFolderError: Others can rename files in the folder, and this user does not own it.
    """
    found = os.fstat(fd)
    # In a sticky folder, as /tmp is, users rename only their own files.
    if not found.st_mode & _OTHERS_MAY_WRITE or found.st_mode & stat.S_ISVTX:
        return
    if found.st_uid != os.geteuid():
        raise _unsafe(path, "other users may write to it")
    # With the umask 002, earlier versions created this folder writable by the group.
    os.fchmod(fd, stat.S_IMODE(found.st_mode) & ~_OTHERS_MAY_WRITE)


def _unsafe(path: str, reason: str) -> UnsafeFolderError:
    return UnsafeFolderError(errno.EPERM, f"the folder is not safe: {reason}", path)
