"""Errors of batch systems."""

from __future__ import annotations

from torchx_specs.errors import BackendError, CapacityError, RequestError


class BatchError(BackendError):
    """A command of the batch system failed; the error text contains the command's messages."""


class UnreachableError(BatchError):
    """The batch system did not answer, so it is unknown whether it accepted the request."""


class EndedError(BatchError):
    """The command has no effect on its jobs, because they have ended or do not exist."""


class RefusedError(BatchError, RequestError):
    """The batch system refused a job because of a value in the request."""

    exit_code = RequestError.exit_code


class LimitError(BatchError, CapacityError):
    """The batch system did not accept a job, because this user has too many jobs."""
