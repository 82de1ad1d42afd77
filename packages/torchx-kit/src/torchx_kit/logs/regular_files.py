"""Open files that other programs control, without waiting for these programs."""

from __future__ import annotations

import errno
import os
import stat


def open_regular(path: str, flags: int, mode: int = 0o666, *, dir_fd: int | None = None) -> int:
    """Open a regular file, and return its descriptor.

    :func:`os.open` waits for ever if the path is a FIFO that no other process has opened, and
    reading a device may never end. So only regular files are opened. For writing, a symbolic link
    is refused, too.

    Args:
        path: The file.
        flags: Flags of :func:`os.open`.
        mode: Permission bits of a new file, subject to the umask.
        dir_fd: Descriptor of the folder to which a relative path is relative; None means the
            working directory.

    Raises:
        OSError: The file cannot be opened, or it is not a regular file.
    """
    flags |= os.O_CLOEXEC | os.O_NOCTTY
    if flags & os.O_EXCL:
        return os.open(path, flags, mode, dir_fd=dir_fd)  # a new file is always a regular file
    flags |= os.O_NONBLOCK
    if flags & (os.O_WRONLY | os.O_RDWR):
        flags |= os.O_NOFOLLOW
    fd = os.open(path, flags, mode, dir_fd=dir_fd)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        os.set_blocking(fd, True)  # a process that inherits the descriptor expects this
        return fd
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "not a regular file", path)
