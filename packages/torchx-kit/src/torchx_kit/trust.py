"""Whose files are used: those of this user and of root, which nobody else can change.

A file that is read back, or that makes this process run something, is checked when it is open, by
the status of its descriptor.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from functools import cache
from typing import BinaryIO

#: Name of the variable with the folders, separated by colons, in which other users' files are used,
#: too: folders that a group shares.
ENV_TRUSTED_FOLDERS = "TORCHX_TRUSTED_FOLDERS"
#: Bits of a mode: others may write, and others may read or write.
WRITE, USE = 0o022, 0o077


def distrust(
    status: os.stat_result, refused: int = WRITE, owners: Iterable[int] | None = None
) -> str:
    """Return why a file or folder is not used; an empty string if it is.

    A group whose only member is the owner, as many systems make one for each user, may write. In a
    sticky folder, as ``/tmp`` is, each user can only change the user's own files.

    Args:
        status: The status of the open file.
        refused: What other users must not be allowed: :data:`WRITE` or :data:`USE`.
        owners: The ids of the users who may own it; by default, this user and root.
    """
    uid, mode = status.st_uid, stat.S_IMODE(status.st_mode)
    if uid not in (own_ids() if owners is None else owners):
        return f"it belongs to {_user_name(uid)}"
    if stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX:
        refused &= ~WRITE
    others = mode & refused
    is_group = refused == WRITE and others == stat.S_IWGRP
    if not others or (is_group and _is_private(status.st_gid, uid)):
        return ""
    verb = "use" if refused == USE else "write to"
    return f"other users can {verb} it (mode {mode:04o})"


def distrust_path(path: str, status: os.stat_result) -> str:
    """Return why a file or folder is not used; an empty string if it is, or its folder is trusted.

    Args:
        path: The path, which may be in a folder of ``$TORCHX_TRUSTED_FOLDERS``.
        status: The status of the open file.
    """
    reason = distrust(status)
    return "" if reason and is_trusted_folder(path) else reason


def open_trusted(path: str) -> BinaryIO:
    """Open a regular file for reading; for a file that is not used, also log a warning.

    The warning is logged once for each folder and reason.

    Raises:
        PermissionError: Another user owns the file, or can change it; see :func:`distrust_path`.
        OSError: The file cannot be opened, or it is not a regular file.
    """
    import errno

    from torchx_kit.logs.regular_files import open_regular

    fd = open_regular(path, os.O_RDONLY)
    reason = distrust_path(path, os.fstat(fd))
    if reason:
        os.close(fd)
        _warn(os.path.dirname(path), reason)
        raise PermissionError(errno.EPERM, reason, path)
    return open(fd, "rb")


@cache
def _warn(folder: str, reason: str) -> None:
    import logging

    logging.getLogger(__name__).warning(
        "a file in %s is not used: %s; add the folder to %s if you trust its files",
        folder,
        reason,
        ENV_TRUSTED_FOLDERS,
    )


def own_ids() -> set[int]:
    """Return the ids of this user, of root, and of the user who ran this process with sudo."""
    uid = os.geteuid()
    sudo = os.environ.get("SUDO_UID", "") if uid == 0 else ""
    return {uid, 0, *([int(sudo)] if sudo.isdecimal() else [])}


def is_trusted_folder(path: str) -> bool:
    """Return True if a path is in a folder of ``$TORCHX_TRUSTED_FOLDERS``."""
    folders = filter(None, os.environ.get(ENV_TRUSTED_FOLDERS, "").split(os.pathsep))
    real = os.path.realpath(path)
    roots = (os.path.realpath(os.path.expanduser(folder)) for folder in folders)
    return any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def _is_private(gid: int, uid: int) -> bool:
    """Return True if the owner's primary group has the owner's name, and no other member."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return (user.pw_gid, user.pw_name) == (gid, group.gr_name) and not (
        {*group.gr_mem} - {user.pw_name}
    )


def _user_name(uid: int) -> str:
    import pwd

    try:
        return f"the user '{pwd.getpwuid(uid).pw_name}'"
    except KeyError:
        return f"the user id {uid}"
