"""Opens the files of an app; no other module opens them for writing.

The folder of an app may be in a folder that other users may write to. Another user can then replace
the app's folder by a link, at any time. So the app's folder is opened once, it must belong to this
user and be writable by nobody else, and its files are opened relative to that descriptor. A FIFO or
a link in place of a file is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Iterator

from torchx_kit.logs.regular_files import open_regular
from torchx_sched_local.store.layout import SUCCESS

# Folders of an app: nobody else may write to them, whatever the umask is.
_FOLDER_MODE = 0o755
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnsafeFolderError(PermissionError):
    """The folder of an app is a link or another user's, or other users may write to it."""


class AppFiles:
    """The files in the folder of an app.

    The names of files are relative to the folder, or absolute paths. An absolute path outside of
    the folder, which a subclass of the scheduler may use, is opened as it is.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._prefix = path + os.sep
        self._fd = -1

    # -- the folder

    def create(self) -> None:
        """Create the folder, and keep it open.

        Raises:
            OSError: The folder cannot be created, or exists already.
        """
        try:
            os.mkdir(self.path, _FOLDER_MODE)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            os.mkdir(self.path, _FOLDER_MODE)
        self.hold()

    def hold(self) -> None:
        """Keep the folder open until :meth:`close`, so that nobody can replace it.

        Raises:
            OSError: The folder cannot be opened.
            UnsafeFolderError: Another user owns the folder or may write to it.
        """
        if self._fd < 0:
            self._fd = self._open_folder()

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
            return
        fd = self._open_folder()
        try:
            yield fd
        finally:
            os.close(fd)

    def _open_folder(self) -> int:
        try:
            fd = os.open(self.path, _OPEN_FOLDER)
        except OSError as e:
            if e.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            reason = "it is a link, or not a folder"
            raise UnsafeFolderError(
                errno.EPERM, f"the folder is not safe: {reason}", self.path
            ) from e
        found = os.fstat(fd)
        if found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_MAY_WRITE:
            return fd
        os.close(fd)
        reason = (
            "other users may write to it"
            if found.st_uid == os.geteuid()
            else f"it belongs to the user with the id {found.st_uid}"
        )
        raise UnsafeFolderError(errno.EPERM, f"the folder is not safe: {reason}", self.path)

    # -- files

    def locate(self, path: str) -> tuple[str, int | None]:
        """Return the arguments ``path`` and ``dir_fd`` with which :mod:`os` opens a file.

        The descriptor is None if the folder is not held open, or if the path leads outside of it.
        """
        if path.startswith(self._prefix):
            path = path[len(self._prefix) :]
        elif os.path.isabs(path):
            return path, None
        if self._fd < 0:
            return self._prefix + path, None
        return path, self._fd

    def event_path(self, path: str) -> str:
        """Return a path for file events, which leads through the open folder where possible."""
        name, dir_fd = self.locate(path)
        if dir_fd is None or not sys.platform.startswith("linux"):
            return path
        return f"/proc/self/fd/{dir_fd}/{name}"

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open a regular file, and return its descriptor.

        Raises:
            OSError: The file cannot be opened, or it is a link or not a regular file.
        """
        name, dir_fd = self.locate(path)
        if dir_fd is None and not os.path.isabs(path):
            with self.folder() as fd:
                return open_regular(path, flags, mode, dir_fd=fd)
        return open_regular(name, flags, mode, dir_fd=dir_fd)

    def read(self, path: str, limit: int) -> bytes:
        """Return the content of a file.

        Args:
            path: The file.
            limit: The most bytes that the file may have.

        Raises:
            OSError: The file cannot be read, or is too large.
        """
        return self.read_from(path, 0, limit)

    def read_from(self, path: str, position: int, limit: int) -> bytes:
        """Return the content of a file from a position to its end.

        Args:
            path: The file.
            position: Where to start, in bytes.
            limit: The most bytes that may follow the position.

        Raises:
            OSError: The file cannot be read, or is too large.
        """
        with open(self.open(path, os.O_RDONLY), "rb") as file:
            # Before reading: a sparse file can be larger than the memory.
            size = os.fstat(file.fileno()).st_size - position
            if size > limit:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            file.seek(position)
            return file.read(limit)

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file; readers see the old content or the new one, never a part.

        Raises:
            OSError: The file cannot be written; the old content is unchanged.
        """
        partial = f"{path}.{os.urandom(6).hex()}.partial"
        fd = self.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with open(fd, "wb") as file:
                file.write(data)
            self.rename(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self.remove(partial)
            raise

    def exists(self, path: str) -> bool:
        """Return True if there is a file with this name."""
        try:
            with self.folder() as fd:
                os.stat(self._relative(path), dir_fd=fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def rename(self, old: str, new: str) -> None:
        """Rename a file of the folder; a file with the new name is replaced.

        Raises:
            OSError: The file cannot be renamed.
        """
        with self.folder() as fd:
            os.replace(self._relative(old), self._relative(new), src_dir_fd=fd, dst_dir_fd=fd)

    def remove(self, path: str) -> None:
        """Remove a file of the folder.

        Raises:
            OSError: The file cannot be removed.
        """
        with self.folder() as fd:
            os.unlink(self._relative(path), dir_fd=fd)

    def make_folder(self, path: str) -> None:
        """Create a folder in the folder, with its missing parents; it must not exist.

        Raises:
            OSError: The folder cannot be created.
        """
        name, dir_fd = self.locate(path)
        if dir_fd is None:
            os.makedirs(path, _FOLDER_MODE)
            return
        try:
            os.mkdir(name, _FOLDER_MODE, dir_fd=dir_fd)
        except FileNotFoundError:
            parts = name.split(os.sep)
            for i in range(1, len(parts)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(os.sep.join(parts[:i]), _FOLDER_MODE, dir_fd=dir_fd)
            os.mkdir(name, _FOLDER_MODE, dir_fd=dir_fd)

    def delete(self, private: str, deleted: str) -> None:
        """Delete the folder with its content.

        Everything but the record and ``SUCCESS`` is deleted first. Then the record is renamed, and
        from then on there is no app.

        Args:
            private: Name of the folder with the record.
            deleted: Name of that folder while it is deleted.

        Raises:
            OSError: A file cannot be deleted.
        """
        try:
            with self.folder() as fd:
                _delete_content(fd, {private, deleted, SUCCESS})
                with contextlib.suppress(FileNotFoundError, OSError):
                    os.rename(private, deleted, src_dir_fd=fd, dst_dir_fd=fd)
                _delete_content(fd, set())
                identity = os.fstat(fd)
        except FileNotFoundError:
            return
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self.path, follow_symlinks=False)
            if (found.st_dev, found.st_ino) == (identity.st_dev, identity.st_ino):
                os.rmdir(self.path)

    def _relative(self, path: str) -> str:
        return path[len(self._prefix) :] if path.startswith(self._prefix) else path


def _delete_content(folder: int, spared: set[str]) -> None:
    """Delete the content of an open folder except the names in ``spared``; follow no links."""
    for name in os.listdir(folder):
        if name in spared:
            continue
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=folder)
                continue
            except (IsADirectoryError, PermissionError):
                pass  # macOS reports a folder with EPERM
            inner = os.open(name, _OPEN_FOLDER, dir_fd=folder)
            try:
                _delete_content(inner, set())
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=folder)
