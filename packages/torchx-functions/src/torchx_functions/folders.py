"""Access to private folders. A folder that other users can use is refused, not read.

Each folder is opened relative to its parent, without following symbolic links. The checks use the
open descriptors, so that replacing a path after a check has no effect.

The first line of each file is the SHA-256 of its content, because a pickle with a changed bit is
often a valid pickle of another value.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from torchx_functions.errors import NoResultError, UnsafeFolderError
from torchx_kit.trust import USE, WRITE, distrust

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO must not wait for a writer.
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NOT_FOLLOWED = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
_CHECKSUM_BYTES = 65


class PrivateFolder:
    """An open folder that was checked for access by other users.

    Args:
        path: The absolute path.
        levels: How many folders at the end of the path must be private: other users must have no
            access to these folders.
        owners: The user ids that may own the checked folders; the default is the current user.
        checks_root: Whether to check the parent of the private folders, too. Other users may read
            the parent, but must not be able to write to it.

    Raises:
        FileNotFoundError: The folder does not exist.
        UnsafeFolderError: A checked folder is a symbolic link or a file, belongs to another user,
            or gives other users too much access.
    """

    def __init__(
        self, path: str, levels: int, owners: Iterable[int] = (), *, checks_root: bool = False
    ) -> None:
        self.path = path
        self._owners = frozenset(owners) or frozenset([os.geteuid()])
        names: list[str] = []
        above = path
        for _ in range(levels + checks_root):
            above, name = os.path.split(above)
            names.append(name)
        self._fd = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for level, name in enumerate(reversed(names)):
                above = os.path.join(above, name)
                is_root = checks_root and level == 0
                self._descend(name, above, WRITE if is_root else USE)
        except BaseException:
            os.close(self._fd)
            raise

    def _descend(self, name: str, path: str, refused_mode: int) -> None:
        try:
            fd = os.open(name, _OPEN_FOLDER, dir_fd=self._fd)
        except OSError as e:
            if e.errno in _NOT_FOLLOWED:
                raise UnsafeFolderError(
                    f"{path} is not a folder (symbolic links are refused); nothing was read from it"
                ) from None
            raise
        os.close(self._fd)
        self._fd = fd
        _check(os.fstat(fd), path, self._owners, refused_mode)

    def __enter__(self) -> PrivateFolder:
        return self

    def __exit__(self, *exc_info: object) -> None:
        os.close(self._fd)

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: The file does not exist.
            UnsafeFolderError: The file is not a regular file, belongs to a user who is neither an
                owner of the folder nor root, or gives other users access.
            NoResultError: The file is damaged.
        """
        path = os.path.join(self.path, name)
        try:
            fd = os.open(name, _OPEN_FILE, dir_fd=self._fd)
        except OSError as e:
            if e.errno in _NOT_FOLLOWED:
                raise UnsafeFolderError(
                    f"{path} is a symbolic link; nothing was read from it"
                ) from None
            raise
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafeFolderError(f"{path} is not a regular file; nothing was read from it")
            _check(status, path, self._owners | {0}, USE)
            found, content = file.readline(_CHECKSUM_BYTES), file.read()
        if found != checksum([content]):
            raise NoResultError(f"the file {path} is damaged: it does not match its checksum")
        return content

    def write(self, name: str, *parts: bytes) -> None:
        """Write or replace a file atomically, with mode 0600.

        If this process runs as root, the file gets the owner of the folder.
        """
        self.copy(name, checksum(parts), *parts)

    def copy(self, name: str, *parts: bytes) -> None:
        """Write or replace a file as :meth:`write` does; the parts begin with the checksum."""
        partial = self._write_partial(name, parts)
        try:
            os.rename(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except BaseException:
            self.remove(partial)
            raise

    def create(self, name: str, content: bytes) -> bool:
        """Write a file atomically unless it exists; return False if it exists."""
        partial = self._write_partial(name, (checksum([content]), content))
        try:
            os.link(partial, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        except FileExistsError:
            return False
        finally:
            self.remove(partial)
        return True

    def _write_partial(self, name: str, parts: Sequence[bytes]) -> str:
        partial = f".{name}.{os.urandom(6).hex()}.partial"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(partial, flags, 0o600, dir_fd=self._fd)
        try:
            with open(fd, "wb") as file:
                # A job in a container often runs as root; the user must be able to read the file.
                owner = os.fstat(self._fd)
                if os.geteuid() == 0 and owner.st_uid != 0:
                    os.fchown(fd, owner.st_uid, owner.st_gid)
                file.writelines(parts)
        except BaseException:
            self.remove(partial)
            raise
        return partial

    def remove(self, name: str) -> None:
        """Remove a file; a missing file is not an error."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def names(self) -> list[str]:
        """Return the names in this folder, except those of files that are being written."""
        return sorted(name for name in os.listdir(self._fd) if not name.startswith("."))

    def make(self, name: str) -> None:
        """Create a folder with mode 0700 inside this folder."""
        os.mkdir(name, 0o700, dir_fd=self._fd)


def checksum(parts: Iterable[bytes]) -> bytes:
    """Return the first line of a file with this content."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest().encode() + b"\n"


def _check(status: os.stat_result, path: str, owners: frozenset[int], refused_mode: int) -> None:
    reason = distrust(status, refused_mode, owners)
    if reason:
        mode = "w" if refused_mode == WRITE else "rwx"
        raise UnsafeFolderError(
            f"{path}: {reason}; nothing was read from it: run chmod go-{mode} if only you have"
            " used it"
        )


def open_root(path: str) -> PrivateFolder:
    """Open the folder that contains the folders of all groups of jobs."""
    return PrivateFolder(path, 0, checks_root=True)


def open_group(path: str) -> PrivateFolder:
    """Open the folder of one group: the jobs of one ``map``, or the job of one ``submit``."""
    return PrivateFolder(path, 1, checks_root=True)


def open_call(path: str) -> PrivateFolder:
    """Open the folder of one function call."""
    return PrivateFolder(path, 2, checks_root=True)
