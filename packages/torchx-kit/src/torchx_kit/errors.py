"""Errors that several schedulers raise, and the translation of a client library's errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torchx_specs.errors import BackendError, RequestError


class MountTypeError(RequestError, TypeError):
    """A mount is not a BindMount, VolumeMount or DeviceMount."""


class UnknownReplicaError(RequestError, RuntimeError):
    """The app has no such role, or the role has no such replica."""


@contextmanager
def translated_errors(translate: Callable[[Exception], Exception | None]) -> Iterator[None]:
    """Raise the errors of a client library in the ``with`` block as errors of TorchX.

    Args:
        translate: Returns the TorchX error for an error of the library. Returns None for any other
            error, which is then raised unchanged. Not called for a BackendError, which is also
            raised unchanged.

    Raises:
        Exception: The error that ``translate`` returned.
    """
    try:
        yield
    except BackendError:
        raise
    except Exception as e:
        ours = translate(e)
        if ours is None:
            raise
        raise ours from e
