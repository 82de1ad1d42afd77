"""Every error this project raises on purpose.

All derive from :class:`TorchXError`, and from the builtin that older code catches where there was
one (``ValueError`` for a bad request, ``KeyError`` for an unknown name ...). ``exit_code`` is what
the ``torchx`` command returns for it:

====  =================================================================
1     the job failed, or the app asked for does not exist
2     something is wrong in the request
3     the backend failed
====  =================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torchx_specs.model.status import AppStatus


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns `` did you mean 'x'?`` for the candidate closest to ``name``, or an empty string.

    Letter case and the difference between ``-`` and ``_`` do not count as a difference.
    """
    import difflib

    by_folded = {c.lower().replace("-", "_"): c for c in candidates}
    found = difflib.get_close_matches(name.lower().replace("-", "_"), by_folded, n=1, cutoff=0.6)
    return f" did you mean '{by_folded[found[0]]}'?" if found else ""


def one_line(message: object) -> str:
    """Return the text of a message or an error on one line; an error without a text gives its type.

    Args:
        message: An error, a text, or bytes of UTF-8.
    """
    if isinstance(message, bytes):
        message = message.decode("utf-8", "replace")
    text = " ".join(str(message).split())
    return text or (type(message).__name__ if isinstance(message, BaseException) else "")


class TorchXError(Exception):
    """Base of every error raised on purpose; its text is one readable line."""

    exit_code: ClassVar[int] = 2

    def __reduce__(self) -> tuple[object, ...]:
        # pickle would call the class with `args`, which are the text and not what it was made of
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(
    error: type[TorchXError], args: tuple[object, ...], attributes: dict[str, object]
) -> TorchXError:
    new = error.__new__(error)
    new.args = args
    new.__dict__.update(attributes)
    return new


class RequestError(TorchXError, ValueError):
    """The request is wrong; ``problems`` lists everything that is, one line each."""

    def __init__(self, problems: str | Iterable[str]) -> None:
        self.problems: tuple[str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("; ".join(self.problems))


class InvalidRunConfigException(RequestError):
    """A scheduler option is missing, unknown or of the wrong type.

    Args:
        invalid_reason: what is wrong
        cfg_key: the option at fault
        cfg: the configuration that was given; the text shows it with secrets masked
    """

    def __init__(self, invalid_reason: str, cfg_key: str, cfg: Mapping[str, object]) -> None:
        from torchx_specs.redaction import masked

        given = str(masked(cfg)) if cfg else "<EMPTY>"
        super().__init__(f"{invalid_reason}. Given: {given}")
        self.invalid_reason = invalid_reason
        self.cfg_key = cfg_key
        self.cfg = cfg


class MalformedAppHandleException(RequestError):
    """The text is not ``<scheduler>://<session>/<app id>``."""

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"{app_handle} is not of the form: <scheduler_backend>://<session_name>/<app_id>"
        )
        self.app_handle = app_handle


class UnknownSchedulerException(RequestError):
    """No scheduler of that name is installed.

    Args:
        scheduler_backend: The name.
        known: The names of the installed schedulers.
        install: The command that installs the scheduler, if there is one.
    """

    def __init__(
        self, scheduler_backend: str, known: Iterable[str] = (), install: str = ""
    ) -> None:
        names = sorted(known)
        if install:
            message = (
                f"scheduler '{scheduler_backend}' is not installed; run: {install}"
                f" (installed schedulers: {', '.join(names) or 'none'})"
            )
        else:
            hint = nearest(scheduler_backend, names)
            have = f" installed schedulers: {', '.join(names)}" if names else ""
            message = f"unknown scheduler '{scheduler_backend}';{hint}{have}".rstrip(";")
        super().__init__(message)
        self.scheduler_backend = scheduler_backend


class UnknownAppException(TorchXError):
    """The app does not exist, or its scheduler has forgotten it."""

    exit_code = 1

    def __init__(self, app_handle: str) -> None:
        super().__init__(
            f"unknown app: {app_handle} (never submitted, deleted, or purged by its scheduler)"
        )
        self.app_handle = app_handle


class AppStatusError(TorchXError):
    """The job ended in another state than SUCCEEDED; ``status`` says how."""

    exit_code = 1

    def __init__(self, status: AppStatus, *args: object) -> None:
        super().__init__(*args)
        self.status = status


class NamedResourceNotFoundError(TorchXError, KeyError):
    """No named resource of that name."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0]) if self.args else ""


class ComponentError(TorchXError):
    """Base of what can be wrong with a component or its arguments."""


class ComponentNotFoundException(ComponentError):
    """No component of that name, or no such function in that file."""


class ComponentValidationException(ComponentError):
    """The component breaks the rules for components; the text lists every violation."""


class ComponentArgumentError(ComponentError, ValueError):
    """An argument of a component is unknown, missing or of the wrong type.

    ``parameter`` is its name, or None where the error is not about one parameter.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class ComponentTypeError(ComponentError, TypeError):
    """The component returned something else than an ``AppDef``, or has a signature no command line
    can fill.
    """


class ConfigError(RequestError):
    """A configuration file is missing, unreadable or malformed; the text names file, section and
    key.
    """


class SerializationError(RequestError):
    """Data that is no valid AppDef document, or an AppDef that the format cannot hold; the text has
    the path.
    """


class WorkspaceError(TorchXError):
    """A workspace cannot be read, built or pushed."""


class TrackerError(TorchXError):
    """A tracker cannot be found or refuses its configuration."""


class BackendError(TorchXError, RuntimeError):
    """The scheduler's own system failed or refused the request."""

    exit_code = 3


class PluginError(TorchXError):
    """A plugin cannot be loaded, or two plugins claim one name."""


class PluginConflictError(PluginError, KeyError):
    """Several plugins claim one name, and nothing decides between them."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0]) if self.args else ""
