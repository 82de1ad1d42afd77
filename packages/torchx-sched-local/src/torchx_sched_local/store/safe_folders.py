"""Opens the folders of apps; a folder that another user controls is refused.

The option ``log_dir`` may name a folder that other users may write to. Another user can then create
the folders below it first, or replace one of them by a link, at any time. So each folder below
``log_dir`` is opened relative to the descriptor of the folder above, and checked once it is open,
by the rules of :mod:`torchx_kit.trust`. They permit a sticky folder, as /tmp is: in a folder that
only contains folders of apps, other users may create files, but must not rename those folders. In
the folder of an app, a file of another user could pass for a record, so a sticky folder is refused
there, and so is a folder of root.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from torchx_kit.trust import WRITE, distrust

#: The mode of new folders: nobody else may write to them, whatever the umask is.
FOLDER_MODE = 0o755
#: The flags that open a folder but not a link to one.
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Return a context that closes a descriptor at its end."""
    try:
        yield fd
    finally:
        os.close(fd)


class UnsafeFolderError(PermissionError):
    """A folder is a link, or another user owns it or may write to it."""


def delete_content(folder: int, spared: set[str]) -> None:
    """Delete the content of an open folder except the names in ``spared``; follow no links."""
    for name in os.listdir(folder):
        if name in spared:
            continue
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=folder)
                continue
            except (IsADirectoryError, PermissionError):
                pass  # a folder (on macOS, unlink() of a folder fails with EPERM)
            with closing_fd(os.open(name, OPEN_FOLDER, dir_fd=folder)) as inner:
                delete_content(inner, set())
            os.rmdir(name, dir_fd=folder)


def open_parent(path: str, is_own: bool) -> int:
    """Open the folder in which a new folder is created; create missing folders.

    Args:
        path: The path of the folder to open.
        is_own: Whether this is a folder of the scheduler, which must belong to this user or to
            root. The user has chosen any other folder, which may be a link and may belong to
            anybody.

    Returns:
        A descriptor.

    Raises:
        OSError: A folder cannot be created or opened.
        UnsafeFolderError: The scheduler's own folder is a link, another user owns it, or other
            users may rename files in it.
    """
    if not is_own:
        with contextlib.suppress(FileExistsError):  # if the path is a file, os.open() fails below
            os.makedirs(path, exist_ok=True)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    above, name = os.path.split(path)
    with closing_fd(open_parent(above, is_own=False)) as parent:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, FOLDER_MODE, dir_fd=parent)
        fd = _open(name, path, parent)
    status = os.fstat(fd)
    if status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX:
        # With the umask 002, upstream's TorchX creates this folder writable by the group.
        os.fchmod(fd, stat.S_IMODE(status.st_mode) & ~WRITE)
        return fd
    return _checked(fd, path, distrust(status))


def open_own(name: str, path: str, parent: int | None = None) -> int:
    """Open a folder by its name in a parent folder, if it is this user's; ``path`` is its path."""
    fd = _open(name, path, parent)
    status = os.fstat(fd)
    reason = distrust(status, owners=[os.geteuid()])
    if not reason and status.st_mode & stat.S_ISVTX and status.st_mode & WRITE:
        reason = "other users can write to it"
    return _checked(fd, path, reason)


def _checked(fd: int, path: str, reason: str) -> int:
    """Return an open folder; close it and raise UnsafeFolderError if there is a reason."""
    if reason:
        os.close(fd)
        raise _unsafe(path, reason)
    return fd


def _open(name: str, path: str, parent: int | None) -> int:
    """Open a folder by its name in a parent folder; ``path`` is for messages."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=parent)
    except OSError as e:
        if e.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        raise _unsafe(path, "it is a link, or not a folder") from e


def _unsafe(path: str, reason: str) -> UnsafeFolderError:
    return UnsafeFolderError(errno.EPERM, f"the folder is not safe: {reason}", path)
