"""The errors of functions that run as jobs."""

from __future__ import annotations

from concurrent.futures import CancelledError

from torchx_specs.errors import RequestError, TorchXError


class PickleError(RequestError):
    """The function or its arguments cannot be pickled."""


class UnsafeFolderError(TorchXError):
    """Another user may have changed a folder or file of a job, so nothing is unpickled from it."""


class FunctionJobError(TorchXError):
    """Base class of errors of a job; ``handle`` is the job's handle."""

    exit_code = 1

    def __init__(self, message: str, handle: str = "") -> None:
        super().__init__(message)
        self.handle = handle


class NoResultError(FunctionJobError):
    """The job ended without a readable outcome, for example because it was killed."""


class RemoteError(FunctionJobError):
    """The function could not be called, or its result or exception cannot be transferred.

    ``type_name`` is the name of the exception's type in the job; empty if the function raised none.
    """

    def __init__(self, message: str, handle: str = "", type_name: str = "") -> None:
        super().__init__(message, handle)
        self.type_name = type_name


class JobCancelledError(FunctionJobError, CancelledError):
    """The job was cancelled."""


class ResultTimeoutError(FunctionJobError, TimeoutError):
    """The job did not end in time, and continues to run."""


class RemoteTraceback(Exception):
    """The traceback of an exception in the job, as the ``__cause__`` of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'
