"""The errors that this project raises on purpose.

All errors derive from :class:`TorchXError`. Many also derive from a builtin exception
(``ValueError`` for a bad request, ``KeyError`` for an unknown name), so that programs can catch
either class. ``exit_code`` of a class in this module is the exit code of the ``torchx`` command:

====  =================================================================
1     the job failed or does not exist
2     the request is wrong
3     the backend failed
====  =================================================================
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterable, Mapping
from typing import ClassVar


def nearest(name: object, candidates: Iterable[str]) -> str:
    """Return `` did you mean 'x'?`` for the candidate closest to ``name``, or an empty string.

    Letter case, and ``-`` in place of ``_``, do not count as differences. A name from a caller in
    Python may be no text.
    """
    import difflib

    by_folded = {_folded(c): c for c in candidates}
    found = difflib.get_close_matches(_folded(str(name)), by_folded, n=1, cutoff=0.6)
    return f" did you mean '{by_folded[found[0]]}'?" if found else ""


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def one_line(message: object) -> str:
    """Return an error, a text or UTF-8 bytes as one line.

    For an error without a message, return the name of the error's type.
    """
    if isinstance(message, bytes):
        message = message.decode("utf-8", "replace")
    text = " ".join(str(message).split())
    return text or (type(message).__name__ if isinstance(message, BaseException) else "")


class TorchXError(Exception):
    """Base class of every error that is raised on purpose; the message is one line."""

    exit_code: ClassVar[int] = 2

    # KeyError, a base of some subclasses, would return the repr of the message
    __str__ = Exception.__str__

    def __reduce__(self) -> tuple[object, ...]:
        # pickle would call the class with `args`, which are not the constructor's arguments
        return copyreg.__newobj__, (type(self),), {**self.__dict__, "args": self.args}  # type: ignore[attr-defined]


class RequestError(TorchXError, ValueError):
    """The request is wrong; ``problems`` has a line for each problem."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("; ".join(self.problems))


class InvalidRunConfigException(RequestError):
    """A scheduler option is missing, unknown, repeated or of the wrong type, or malformed.

    Args:
        invalid_reason: The problem.
        cfg_key: The option at fault; empty if the problem is about no single option.
        cfg: The given configuration; the message shows it with secrets masked.
    """

    def __init__(self, invalid_reason: str, cfg_key: str, cfg: Mapping[str, object]) -> None:
        from torchx_specs.redaction import masked

        given = str(masked(cfg)) if cfg else "<EMPTY>"
        super().__init__(f"{invalid_reason}. Given: {given}")
        self.invalid_reason = invalid_reason
        self.cfg_key = cfg_key
        self.cfg = cfg


class NotSupportedError(RequestError, NotImplementedError):
    """The scheduler, or the host of its commands, lacks an optional ability."""


class MalformedAppHandleException(RequestError):
    """An app handle is not of the form ``<scheduler>://<session>/<app id>``."""

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"{app_handle} is not of the form: <scheduler_backend>://<session_name>/<app_id>"
        )
        self.app_handle = app_handle


class UnknownSchedulerException(RequestError):
    """The requested scheduler is unknown or not installed.

    Args:
        scheduler_backend: Name of the requested scheduler.
        known: Names of the installed schedulers.
        install: The command that installs the scheduler, if there is one.
    """

    def __init__(
        self, scheduler_backend: str, known: Iterable[str] = (), install: str = ""
    ) -> None:
        names = sorted(known)
        have = f"installed schedulers: {', '.join(names) or 'none'}"
        if install:
            message = f"scheduler '{scheduler_backend}' is not installed; run: {install} ({have})"
        else:
            message = f"unknown scheduler '{scheduler_backend}'"
            if names:
                message += f";{nearest(scheduler_backend, names)} {have}"
        super().__init__(message)
        self.scheduler_backend = scheduler_backend


class UnknownAppException(TorchXError):
    """The app does not exist, or the scheduler deleted the record of the app."""

    exit_code = 1

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"unknown app: {app_handle} (never submitted, deleted, or purged by its scheduler)"
        )
        self.app_handle = app_handle


class NamedResourceNotFoundError(TorchXError, KeyError):
    """No resource is registered under the requested name."""


class ComponentError(TorchXError):
    """Base class of errors in a component or in a component's arguments."""


class ComponentNotFoundException(ComponentError):
    """No component has the requested name, or the file has no such function."""


class ComponentValidationException(ComponentError):
    """The component violates the rules for components; the message lists all violations."""


class ComponentArgumentError(ComponentError, ValueError):
    """An argument of a component is unknown, missing or of the wrong type.

    ``parameter`` is the parameter's name, or None if the error is not about one parameter.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ComponentTypeError(ComponentError, TypeError):
    """The component did not return an ``AppDef``, or its signature is not supported."""


class ConfigError(RequestError):
    """A configuration file is missing, unreadable or malformed, or a directory cannot be created.

    The message names the file, and the section and the key if there are any.
    """


class SerializationError(RequestError):
    """A document is not a valid AppDef, or an AppDef has values that the format cannot hold."""


class WorkspaceError(TorchXError):
    """A workspace cannot be read, built or pushed."""


class TrackerError(TorchXError):
    """A tracker cannot be found or refuses its configuration."""


class BackendError(TorchXError, RuntimeError):
    """The scheduler's backend failed or refused the request."""

    exit_code = 3


class CapacityError(BackendError):
    """The user has too many jobs. The app was not submitted, and a later retry may succeed."""


class PluginError(TorchXError):
    """A plugin cannot be loaded, or two plugins have the same name."""


class PluginConflictError(PluginError, KeyError):
    """Several plugins have the same name, and none overrides the others."""
