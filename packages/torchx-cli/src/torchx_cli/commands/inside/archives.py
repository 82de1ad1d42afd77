"""Packs and unpacks tar archives of copied files; writes no file outside the target folder."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from torchx_specs.errors import RequestError

logger = logging.getLogger(__name__)

# The mode bits that are copied. The other bits are set-uid, set-gid, sticky, and write access by
# the group and others.
_MODE_BITS = 0o755
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Members with a text that tarfile reads into memory, and the longest one, in bytes.
_TEXT_TYPES = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)
_LONGEST_TEXT = 1 << 20
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


# -- packing files into an archive


def pack(path: str, name: str, write: Callable[[bytes], object]) -> None:
    """Write a file or folder as a tar archive.

    Links stay links. Sockets, devices and FIFOs are left out with a warning.

    Args:
        path: The file or folder.
        name: Its name in the archive.
        write: Receives the bytes of the archive.

    Raises:
        RequestError: The path does not exist or cannot be read.
    """
    file: Any = SimpleNamespace(write=write)  # tarfile calls no other method
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, path, name)


def _add(archive: tarfile.TarFile, path: str, name: str) -> None:
    try:
        info = archive.gettarinfo(path, name)
        if info is None:
            logger.warning("%s is a socket, which is not copied", path)
            return
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode &= 0o777
        if info.islnk():  # another name (hard link) of a file that is already in the archive
            archive.addfile(info)
        elif info.isreg():
            with open(path, "rb") as file:
                archive.addfile(info, file)
        elif info.isdir() or info.issym():
            archive.addfile(info)
            entries = sorted(os.listdir(path)) if info.isdir() else []
            for entry in entries:
                _add(archive, os.path.join(path, entry), f"{name}/{entry}")
        else:
            logger.warning("%s is a device or FIFO, which is not copied", path)
    except OSError as e:
        where = os.fsdecode(e.filename or path)
        raise RequestError(f"cannot read {where}: {e.strerror or e}") from None


# -- unpacking an archive


def unpack(chunks: Iterable[bytes], target: str) -> None:
    """Unpack an archive of one file or folder to a path, which need not exist.

    No file outside the target is written: a name that leads out of the target is an error, and
    links in the target are not followed. Devices, FIFOs, and links that lead out of the target, are
    left out with a warning. A file replaces a file or link of the same name. The bits for set-uid,
    set-gid and write access by the group and others are cleared.

    Args:
        chunks: The archive.
        target: The path of the copy; the folder above it must exist.

    Raises:
        RequestError: The archive is damaged or empty, has a name that leads out of the target, or
            cannot be written to the target.
    """
    parent, name = os.path.split(os.path.abspath(target))
    found = False
    folders: list[tuple[tuple[str, ...], int]] = []
    try:
        top = os.open(parent, _FOLDER & ~os.O_NOFOLLOW)
        try:
            with _opened(chunks) as archive:
                for member in archive:
                    found = True
                    parts = (name, *_parts(member.name))
                    _write_member(archive, member, top, parts)
                    if member.isdir():
                        folders.append((parts, member.mode & _MODE_BITS))
            # Set the modes at the end, the deepest folder first: a mode may deny the owner access.
            for parts, mode in reversed(folders):
                with _folder(top, parts) as folder:
                    os.fchmod(folder, mode)
        finally:
            os.close(top)
    except tarfile.TarError as e:
        if found or not isinstance(e, tarfile.ReadError):
            raise RequestError(f"the archive of {name} is damaged: {e}") from None
    except OSError as e:
        where = os.fsdecode(e.filename) if e.filename else target
        raise RequestError(f"cannot write {where}: {e.strerror or e}") from None
    if not found:
        raise RequestError("the replica sent no file")


def holds_folder(chunks: Iterable[bytes]) -> bool:
    """Return True if an archive begins with a folder; False also if it is damaged or empty."""
    try:
        with _opened(chunks) as archive:
            return any(member.isdir() for member in [archive.next()] if member is not None)
    except tarfile.TarError:
        return False


class _Member(tarfile.TarInfo):
    """A member of an archive from a replica, which may be hostile."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Process a parsed header; refuse one before a long name, which would be read at once.

        tarfile names this method for subclasses to override.
        """
        if self.type in _TEXT_TYPES and self.size > _LONGEST_TEXT:
            raise tarfile.TarError(f"a header has {self.size} bytes")
        return super()._proc_member(archive)  # type: ignore[misc, no-any-return]


@contextlib.contextmanager
def _opened(chunks: Iterable[bytes]) -> Iterator[tarfile.TarFile]:
    """Open an archive.

    Raises:
        tarfile.TarError: The archive is damaged.
    """
    pieces = filter(None, chunks)
    stream: Any = SimpleNamespace(read=lambda size: next(pieces, b""))  # of any size
    try:
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
            yield archive
    except RequestError:
        raise
    except (ValueError, OverflowError, EOFError) as e:  # such as a time that is no number
        raise tarfile.TarError(str(e)) from e


def _parts(name: str) -> list[str]:
    """Return the parts of a member's name after the first one, the name of the copied file.

    Raises:
        RequestError: The name leads out of the archive.
    """
    parts = [part for part in name.split("/")[1:] if part not in ("", ".")]
    if name.startswith(("/", "../")) or name == ".." or ".." in parts:
        raise RequestError(f"the archive has the name {name!r:.200}, which leads out of it")
    return parts


def _write_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, top: int, parts: tuple[str, ...]
) -> None:
    """Write one member below the folder ``top``.

    A new folder has the mode 0700, so that the members in it can be written.
    """
    with _folder(top, parts[:-1]) as folder:
        name, mode = parts[-1], member.mode & _MODE_BITS
        if member.isdir():
            try:
                os.mkdir(name, 0o700, dir_fd=folder)
            except FileExistsError:
                with _folder(folder, (name,)):
                    pass  # raises an error if the name is a file or a link
        elif member.isreg():
            _replace(folder, name, lambda path: _write_file(archive, member, folder, path, mode))
        elif member.issym():
            if _is_left_out(member.linkname, parts):
                return
            _replace(folder, name, lambda path: os.symlink(member.linkname, path, dir_fd=folder))
        elif member.islnk():
            source = (parts[0], *_parts(member.linkname))
            with _folder(top, source[:-1]) as other:
                status = os.stat(source[-1], dir_fd=other, follow_symlinks=False)
                if stat.S_ISLNK(status.st_mode):  # from here, the same link may lead elsewhere
                    logger.warning("left out %s, a hard link to a link", "/".join(parts))
                    return
                _replace(
                    folder,
                    name,
                    lambda path: os.link(
                        source[-1],
                        path,
                        src_dir_fd=other,
                        dst_dir_fd=folder,
                        follow_symlinks=False,
                    ),
                )
        else:
            logger.warning("left out %s, which is a device or FIFO", "/".join(parts))


@contextlib.contextmanager
def _folder(top: int, parts: tuple[str, ...]) -> Iterator[int]:
    """Open the folder ``top/parts[0]/parts[1]/…``, and yield its descriptor; follow no link."""
    fd = os.dup(top)
    try:
        for part in parts:
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _replace(folder: int, name: str, create: Callable[[str], object]) -> None:
    """Create a file under a temporary name, and rename it to ``name`` once it is complete."""
    partial = f".{os.urandom(12).hex()}.partial"
    try:
        create(partial)
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise
    # If both names are hard links to one file, rename(2) keeps both. So delete the temporary one.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=folder)


def _write_file(
    archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, path: str, mode: int
) -> None:
    source: Any = archive.extractfile(member)
    with open(os.open(path, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
        shutil.copyfileobj(source, file)  # tarfile raises ReadError if the content ends early
        file.flush()
        os.fchmod(file.fileno(), mode)
        os.utime(file.fileno(), (member.mtime, member.mtime))


def _is_left_out(link: str, parts: tuple[str, ...]) -> bool:
    """Return True if a link leads out of the copy, or might do so through another link.

    A warning is logged.

    Args:
        link: The text of the link.
        parts: The path of the link itself; the first part is the copy.
    """
    depth = len(parts) - 2  # how many folders of the copy are above the link's own folder
    words = [word for word in link.split("/") if word not in ("", ".")]
    ups = next((i for i, word in enumerate(words) if word != ".."), len(words))
    if not link.startswith("/") and ups <= depth and ".." not in words[ups:]:
        return False
    path = "/".join(parts)
    logger.warning("left out the link %s to %s, which leads out of the copy", path, link)
    return True
