"""Opens the folder of an app and the files in it; a folder that another user controls is refused.

A supervision writes to the files of an app only through this module. The option ``log_dir`` may
name a folder that other users may write to. Another user can then create the folders below it
first, or replace one of them by a link, at any time. So each folder below ``log_dir`` is opened
relative to the descriptor of the folder above, and checked once it is open, by the rules of
:mod:`torchx_kit.trust`. They permit a sticky folder, as /tmp is: in a folder that only contains
folders of apps, other users may create files, but must not rename those folders. In the folder of
an app, a file of another user could pass for a record, so a sticky folder is refused there, and so
is a folder of root.

The folder of an app is opened once, and its files relative to its descriptor. A FIFO or a link in
place of a file is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from io import FileIO

from torchx_kit.home import make_private
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.trust import WRITE, distrust
from torchx_sched_local.store.layout import PRIVATE, base_folder

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


class AppFiles:
    """The folder of an app, and the files in it.

    The names of files are relative to the folder, or absolute paths. An absolute path outside of
    the folder, which a subclass of the scheduler may use, is opened as it is: the operating system
    ignores the descriptor of the folder then.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._prefix = path + os.sep
        self._fd = -1

    # -- The methods below create, open and close the folder.

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
        with closing_fd(open_parent(above, levels=1 if is_in_session else 0)) as parent:
            try:
                os.mkdir(name, FOLDER_MODE, dir_fd=parent)
                self._fd = open_own(name, self.path, parent)
            except OSError as e:
                e.filename = self.path
                raise
        os.mkdir(PRIVATE, 0o700, dir_fd=self._fd)

    def close(self) -> None:
        """Close the folder; may be called more than once."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
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

    # -- The methods below read and change the content of the folder.

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

    def read_file(self, path: str, position: int, limit: int) -> bytes:
        """Return the content of a file from a position to its end.

        Args:
            path: The file.
            position: Where to start, in bytes.
            limit: The largest allowed number of bytes after the position.

        Raises:
            OSError: The file cannot be read, or is too large.
        """
        with open(self.open(path, os.O_RDONLY), "rb") as file:
            # Check the size before reading, because a sparse file can be larger than the memory.
            size = os.fstat(file.fileno()).st_size - position
            if size > limit:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            file.seek(position)
            return file.read(limit)

    def write_file(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Create or replace a file; readers see the old content or the new one, never a part.

        Raises:
            OSError: The file cannot be written; the old content is unchanged.
        """
        partial = f"{path}.{os.urandom(6).hex()}.partial"
        fd = self.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            self.rename(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(partial)
            raise

    def rename(self, old: str, new: str) -> None:
        """Rename a file of the folder; a file with the new name is replaced.

        Raises:
            OSError: The file cannot be renamed.
        """
        names = [path.removeprefix(self._prefix) for path in (old, new)]
        with self.folder() as fd:
            os.replace(*names, src_dir_fd=fd, dst_dir_fd=fd)

    def remove(self, path: str) -> None:
        """Remove a file of the folder.

        Raises:
            OSError: The file cannot be removed.
        """
        with self.folder() as fd:
            os.unlink(path, dir_fd=fd)

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
