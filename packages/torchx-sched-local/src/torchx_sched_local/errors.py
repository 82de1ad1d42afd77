"""Errors of the local scheduler."""

from __future__ import annotations

import errno
import os

from torchx_specs.errors import BackendError, RequestError, TorchXError, UnknownAppException

#: Values of ``errno`` that mean a mistake in the request, not a problem of the machine.
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

#: Values of ``errno`` that concern one program or its arguments. Other errors affect every program.
PROGRAM_ERRORS = REQUEST_ERRORS | {errno.E2BIG, errno.EINVAL, errno.ENOEXEC, errno.ETXTBSY}

#: Values of ``errno`` if the machine has too many processes or files, or no space.
_TEMPORARY_ERRORS = frozenset(
    {errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}
)


class UnknownLocalAppError(UnknownAppException, KeyError):
    """There is no app with the given id."""

    def __str__(self) -> str:  # KeyError.__str__ would return the repr of the message
        return str(self.args[0])


class TooManyAppsError(RequestError, IndexError):
    """The scheduler already runs as many apps as its ``cache_size`` allows."""


class NoLogError(BackendError):
    """The log of a replica cannot be found, or the replica was started without a log file."""


def folder_error(folder: str, error: OSError) -> TorchXError:
    """Return the error to raise if an app's folder, or a file in it, cannot be written.

    Args:
        folder: The app's folder.
        error: The error that was raised when writing.
    """
    reason = error.strerror or str(error)
    path = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else folder
    if error.errno in REQUEST_ERRORS:
        return RequestError(
            f"cannot write the logs to {path}: {reason};"
            " choose another folder with the option log_dir, or with TORCHX_HOME"
        )
    return BackendError(f"cannot write the logs to {path}: {reason}")


def single_element_error(app_id: str, array: str) -> RequestError:
    """Return the error to raise if an element of an array is to be deleted without the others.

    Args:
        app_id: The element's id.
        array: The array's id.
    """
    return RequestError(
        f"cannot delete {app_id} alone: the elements of a local array are deleted together; delete"
        f" {array}, or the sweep"
    )


def is_temporary(error: Exception) -> bool:
    """Return True if a process may start later although its start has failed with this error."""
    return isinstance(error, BackendError) or (
        isinstance(error, OSError) and error.errno in _TEMPORARY_ERRORS
    )
