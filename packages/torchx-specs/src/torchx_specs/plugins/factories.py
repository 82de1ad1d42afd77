"""The signatures of the factories in plugins' records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torchx_specs.model.app import AppDef
    from torchx_specs.model.resources import Resource
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.check_results import CheckResult
    from torchx_specs.schedulers.api import Scheduler
    from torchx_specs.schedulers.log_items import Block, Replica
    from torchx_specs.schedulers.logs import LogQuery
    from torchx_specs.trackers.api import TrackerBase
    from torchx_specs.workspace.pruning import Prunable, PruneQuery


class SchedulerFactory(Protocol):
    """Makes a scheduler."""

    def __call__(self, session_name: str, **scheduler_params: Any) -> Scheduler[Any]:
        """Return a new scheduler.

        Args:
            session_name: Name of the session; part of app handles.
            scheduler_params: Keyword arguments that were passed to ``get_runner``. They are for all
                schedulers, so ignore unknown ones.
        """


class ResourceFactory(Protocol):
    """Makes a named resource."""

    def __call__(self) -> Resource:
        """Return a new resource."""


class TrackerFactory(Protocol):
    """Makes a tracker."""

    def __call__(self, config: str | None, /) -> TrackerBase:
        """Return a new tracker.

        Args:
            config: Value of ``config`` in the section ``[tracker:NAME]`` of ``.torchxconfig``, or
                None.
        """


class CommandFactory(Protocol):
    """A :class:`click.Command`, or a function that returns one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the command; if the factory is itself a command, the call runs the command."""


class WorkspaceFactory(Protocol):
    """Makes a workspace builder."""

    def __call__(self) -> Any:
        """Return a new builder, a ``torchx_kit.workspace.WorkspaceBuilder``."""


class SupervisorFactory(Protocol):
    """Makes a supervisor of apps."""

    def __call__(self) -> Any:
        """Return a supervisor, of the class that the scheduler defines."""


class HostFactory(Protocol):
    """Makes a host: a machine whose commands and files schedulers use."""

    def __call__(self, name: str, /) -> Any:
        """Return a ``torchx_kit.hosts.api.Host``, without connecting to it.

        Args:
            name: The name of the host, as the user gave it.

        Raises:
            RequestError: The name is not valid.
        """


class PrunerFactory(Protocol):
    """Finds data that TorchX made and that no job uses."""

    def __call__(self, query: PruneQuery, /) -> Iterable[Prunable]:
        """Yield the data, and remove nothing.

        Args:
            query: The user's request.

        Raises:
            TorchXError: The service that has the data does not answer.
        """


class CheckFactory(Protocol):
    """Checks this machine or a service."""

    def __call__(self, cfg: Mapping[str, CfgVal], /) -> Iterable[CheckResult]:
        """Yield the results; ``cfg`` has the options of the check's subject (a scheduler)."""


class EventHandlerFactory(Protocol):
    """Makes a destination of the runner's events."""

    def __call__(self) -> logging.Handler:
        """Return a new handler."""


class LogSink(Protocol):
    """Stores data under names such as ``slurm/torchx/17/trainer/0/combined-0.log``."""

    def write(self, name: str, data: bytes, /) -> None:
        """Store data under a name; an interrupted call may leave only the beginning of the data."""

    def read(self, name: str, /) -> bytes:
        """Return the data of a name; a missing name is a :class:`FileNotFoundError`."""

    def list(self, folder: str, /) -> Iterable[str]:
        """Yield the names that begin with ``folder`` and a slash."""


class LogSinkFactory(Protocol):
    """Makes a log sink."""

    def __call__(self, url: str, /) -> LogSink:
        """Return the sink of a URL in ``[log_sink:NAME]``, without contacting its service."""


class LogCopy(Protocol):
    """The copy of an app's logs in one sink; ``str()`` returns the sink's name and URL."""

    @property
    def app(self) -> AppDef:
        """The name and the roles of the app."""

    @property
    def failed(self) -> Container[Replica]:
        """The replicas that failed; unknown if the copy is not complete."""

    @property
    def is_complete(self) -> bool:
        """Whether the app has ended and the copy has all lines."""

    def log_blocks(
        self, app_handle: str, replicas: Iterable[Replica], query: LogQuery, /
    ) -> Iterator[Block]:
        """Return the lines of replicas, as a runner's ``log_blocks`` does."""


class LogCopies(Protocol):
    """Saves the logs of apps in all log sinks, and finds the copies.

    The methods take a ``torchx_runner.Runner``, an app's handle, and the app's replicas.
    """

    sinks: Sequence[object]
    """The usable sinks; ``str()`` of a sink returns its name and URL."""

    def find(self, app_handle: str, /) -> LogCopy | None:
        """Return the copy of an app's logs, if possible a complete one."""

    def save(self, runner: Any, app_handle: str, replicas: Sequence[Replica], follow: bool) -> None:
        """Save what an app has written, or everything until its end, and log the result."""

    def saving(self) -> AbstractContextManager[None]:
        """Return a context whose end calls :meth:`finish`; an exception ends the saving."""

    def start(self, runner: Any, app_handle: str, replicas: Sequence[Replica]) -> None:
        """Begin to save the logs of an app in the background."""

    def finish(self) -> None:
        """Wait until the logs of all apps that :meth:`start` was called for are saved."""


class LogCopiesFactory(Protocol):
    """Opens all log sinks."""

    def __call__(self, urls: Mapping[str, str], /) -> LogCopies:
        """Return what saves logs in the sinks ``[log_sink:NAME]``, by their URLs."""


class Deliveries(Protocol):
    """Sends notifications by several notifiers in the background."""

    def send(self, data: Mapping[str, Any], /) -> None:
        """Send a notification to each notifier; a failure is logged as a warning."""

    def finish(self, deadline: float | None = None, /) -> None:
        """Wait until all notifications are sent; give up after ``deadline`` seconds of silence."""


class NotifierFactory(Protocol):
    """Makes a notifier from its section ``[notifier:NAME]`` of ``.torchxconfig``."""

    def __call__(self, config: Mapping[str, str], /) -> Callable[[Mapping[str, Any]], None]:
        """Return a function that sends its argument, JSON-like data about an ended job."""


class DeliveriesFactory(Protocol):
    """Opens notifiers, and makes the object that sends notifications by them."""

    def __call__(
        self, names: Iterable[str], sections: Mapping[str, Mapping[str, str]], /
    ) -> Deliveries:
        """Return the deliveries to some notifiers.

        Args:
            names: The names of the notifiers.
            sections: The sections ``[notifier:NAME]`` of ``.torchxconfig``, by NAME.

        Raises:
            RequestError: A notifier has no section, or a wrong one.
        """


class ComponentFileReader(Protocol):
    """Reads component files that are not on this machine."""

    def __call__(self, path: str, /) -> str:
        """Return the text of a component file.

        Raises:
            OSError: This reader has no such file; the next reader is then called.
        """
