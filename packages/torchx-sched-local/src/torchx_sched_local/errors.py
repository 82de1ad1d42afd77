"""Errors of this scheduler."""

from __future__ import annotations

import errno
import os

from torchx_specs.errors import BackendError, RequestError, TorchXError, UnknownAppException

#: Error numbers that say that something is wrong with the request, not with the machine.
REQUEST_ERRORS = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


class UnknownLocalAppError(UnknownAppException, KeyError):
    """There is no app of that id."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class TooManyAppsError(RequestError, IndexError):
    """As many apps run as the scheduler's ``cache_size`` allows."""


class NoLogError(BackendError):
    """There is no log to read: the replica was not made to write one."""


def folder_error(folder: str, error: OSError) -> TorchXError:
    """Returns the error that says why an app's folder, or a file in it, cannot be written."""
    what = error.strerror or str(error)
    path = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else folder
    if error.errno in REQUEST_ERRORS:
        return RequestError(
            f"cannot write the logs to {path}: {what};"
            " choose another folder with the option log_dir, or with TORCHX_HOME"
        )
    return BackendError(f"cannot write the logs to {path}: {what}")
