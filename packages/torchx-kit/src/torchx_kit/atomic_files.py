"""Atomic writes of files."""

from __future__ import annotations

import contextlib
import os


def write_atomically(
    path: str, content: str | bytes, mode: int = 0o600, *, dir_fd: int | None = None
) -> None:
    """Write or replace a file: readers see the old content or the new one, never a part.

    Args:
        path: The file; its directory must exist.
        content: The content; text is encoded as UTF-8, surrogate escapes as the original bytes.
        mode: Permission bits, subject to the umask; by default only the owner may read the file.
        dir_fd: Descriptor of the folder to which a relative path is relative; None means the
            working directory.

    Raises:
        OSError: The file cannot be written; the old content is unchanged.
    """
    data = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    folder, name = os.path.split(path)
    # each call has its own temporary file, because several may write the same file concurrently
    partial = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.partial")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=dir_fd)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        os.replace(partial, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=dir_fd)
        raise
