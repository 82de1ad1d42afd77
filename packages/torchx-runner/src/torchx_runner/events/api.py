"""What the runner did, as one record a call, for whoever wants to know.

Events go to the destination ``null``: to nobody, unless a plugin gives an event handler of that
name (:func:`torchx_specs.hookspecs.torchx_event_handlers`) or ``$TORCHX_EVENTS`` says where to:

- ``jsonl:PATH`` appends one JSON object a line to a file that only its owner can read
- any other value is the name of an event handler (``console`` writes to standard error)

As long as nobody listens an event costs a few microseconds. Values of options that look secret
(``token``, ``password``, ``api_key`` ...) are masked wherever the event would show them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchx_runner.installed_schedulers import plugin_manager
from torchx_runner.session import get_session_id_or_create_new
from torchx_specs.errors import ConfigError, PluginError

if TYPE_CHECKING:
    import logging
    from types import TracebackType

    from typing_extensions import Self

    from torchx_specs.plugins.catalog import Catalog
    from torchx_specs.plugins.records import EventHandlerPlugin
    from torchx_specs.workspace.spec import Workspace

#: Environment variable that names where events go.
ENV_TORCHX_EVENTS = "TORCHX_EVENTS"


class SourceType(str, Enum):
    """Who caused an event."""

    UNKNOWN = "<unknown>"
    INTERNAL = "INTERNAL"
    EXTERNAL = "EXTERNAL"


@dataclass
class TorchxEvent:
    """One call of the runner.

    Args:
        session: id of the launcher process (not the name of the runner)
        scheduler: the scheduler it went to
        api: which call (``run``, ``status`` ...)
        app_id: the app, once it has an id
        app_image: image of the first role
        app_metadata: metadata of the app
        runcfg: the scheduler's options as JSON, secrets masked
        raw_exception: the traceback, if the call failed
        source: who caused it
        cpu_time_usec: CPU time of this process during the call, in microseconds
        wall_time_usec: duration of the call, in microseconds
        start_epoch_time_usec: when it began, in microseconds since the epoch
        workspace: the workspace that was asked for
        exception_type: class of the exception, if the call failed
        exception_message: its text
        exception_source_location: where it was raised, as JSON: ``filename``, ``lineno``, ``name``
    """

    session: str
    scheduler: str
    api: str
    app_id: str | None = None
    app_image: str | None = None
    app_metadata: dict[str, str] | None = None
    runcfg: str | None = None
    raw_exception: str | None = None
    source: SourceType = SourceType.UNKNOWN
    cpu_time_usec: int | None = None
    wall_time_usec: int | None = None
    start_epoch_time_usec: int | None = None
    workspace: str | None = None
    exception_type: str | None = None
    exception_message: str | None = None
    exception_source_location: str | None = None

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | TorchxEvent) -> TorchxEvent:
        """Returns the event that :meth:`serialize` made ``data`` from.

        Raises:
            TypeError: ``data`` is neither text nor an event
        """
        import json

        if isinstance(data, TorchxEvent):
            return data
        if not isinstance(data, str):
            raise TypeError(f"expected JSON text or a TorchxEvent, got {type(data).__name__}")
        values: dict[str, Any] = json.loads(data)
        source = values.pop("source", None)
        if source in {member.value for member in SourceType}:
            values["source"] = SourceType(source)
        return TorchxEvent(**values)

    def serialize(self) -> str:
        """Returns the event as one line of JSON."""
        import json

        return json.dumps(asdict(self))


class log_event:  # noqa: N801 - a documented name, used as a context manager
    """Records one call as an event when it ends, well or badly.

    ``_torchx_event`` is the event; what becomes known during the call is set on it.

    Args:
        api: which call
        scheduler: the scheduler it goes to
        app_id: the app
        app_image: image of its first role
        app_metadata: its metadata
        runcfg: the scheduler's options, as a mapping or as JSON text
        workspace: the workspace
    """

    def __init__(
        self,
        api: str,
        scheduler: str | None = None,
        app_id: str | None = None,
        app_image: str | None = None,
        app_metadata: dict[str, str] | None = None,
        runcfg: str | Mapping[str, Any] | None = None,
        workspace: str | Workspace | None = None,
    ) -> None:
        self._torchx_event = TorchxEvent(
            session=get_session_id_or_create_new(),
            scheduler=scheduler or "",
            api=api,
            app_id=app_id,
            app_image=app_image,
            app_metadata=app_metadata,
            runcfg=runcfg if isinstance(runcfg, str) else None,
            workspace=str(workspace) if workspace else None,
        )
        self._cfg = runcfg
        self._wall_ns = 0
        self._cpu_ns = 0

    def __enter__(self) -> Self:
        self._torchx_event.start_epoch_time_usec = time.time_ns() // 1000
        self._wall_ns = time.perf_counter_ns()
        self._cpu_ns = time.process_time_ns()
        return self

    def __exit__(
        self,
        exec_type: type[BaseException] | None,
        exec_value: BaseException | None,
        traceback_type: TracebackType | None,
    ) -> None:
        event = self._torchx_event
        event.cpu_time_usec = (time.process_time_ns() - self._cpu_ns) // 1000
        event.wall_time_usec = (time.perf_counter_ns() - self._wall_ns) // 1000
        if exec_value is not None:
            event.exception_type = type(exec_value).__name__
            event.exception_message = str(exec_value)
        if _has_listeners("null"):
            from torchx_runner.events.details import add_details

            try:
                add_details(event, self._cfg, exec_value)
            except Exception as e:  # e.g. options that JSON cannot hold
                _warn_once(f"event of '{event.api}' is incomplete: {type(e).__name__}: {e}")
        record(event)


def record(event: TorchxEvent, destination: str = "null") -> None:
    """Sends an event to a destination; one that cannot be sent is logged, and nothing else happens.

    Raises:
        KeyError: there is no such destination
    """
    if not _has_listeners(destination):
        return
    log = _get_or_create_logger(destination)
    try:
        log.info(event.serialize())
    except Exception as e:  # whatever a handler raises must not end the call it reports on
        _warn_once(f"event of '{event.api}' cannot be recorded: {type(e).__name__}: {e}")


# what the loggers of the destinations were made from: the handlers there were, and $TORCHX_EVENTS
_made_from: dict[str, tuple[Catalog[EventHandlerPlugin] | None, str]] = {}
_made_handlers: dict[str, list[logging.Handler]] = {}
_warned: set[str] = set()


def _handlers_of_plugins() -> Catalog[EventHandlerPlugin] | None:
    try:
        return plugin_manager().event_handlers()
    except ConfigError:  # told where the configuration is needed
        return None


def _has_listeners(destination: str) -> bool:
    """Returns False if events for this destination reach nobody."""
    if destination != "null" or os.environ.get(ENV_TORCHX_EVENTS):
        return True
    catalog = _handlers_of_plugins()
    if catalog is not None and "null" in catalog.names():
        return True
    logging_module = sys.modules.get("logging")
    if logging_module is None:
        return False
    log = logging_module.root.manager.loggerDict.get(_logger_name("null"))
    return bool(getattr(log, "handlers", None))


def _logger_name(destination: str) -> str:
    return f"torchx-events-{destination}"


def _get_or_create_logger(destination: str = "null") -> logging.Logger:
    """Returns the logger whose handlers make up a destination.

    Raises:
        KeyError: there is no such destination
    """
    import logging

    sink = os.environ.get(ENV_TORCHX_EVENTS, "") if destination == "null" else ""
    catalog = _handlers_of_plugins()
    log = logging.getLogger(_logger_name(destination))
    made_from = _made_from.get(destination)
    if made_from is not None and made_from[0] is catalog and made_from[1] == sink:
        return log
    log.setLevel(logging.INFO)
    log.propagate = False
    for handler in _made_handlers.pop(destination, ()):
        log.removeHandler(handler)
    _made_handlers[destination] = _make_handlers(destination, sink)
    for handler in _made_handlers[destination]:
        log.addHandler(handler)
    _made_from[destination] = (catalog, sink)
    return log


def _make_handlers(destination: str, sink: str) -> list[logging.Handler]:
    from torchx_runner.events.handlers import get_logging_handler, get_sink

    handlers: list[logging.Handler] = []
    try:
        handlers.append(get_logging_handler(destination))
    except Exception as e:
        if isinstance(e, KeyError) and not isinstance(e, PluginError):
            raise  # an unknown destination
        # A plugin's handler that cannot be made must not end the runner's call.
        _warn_once(f"events: {type(e).__name__}: {e}")
    if sink:
        try:
            handlers.append(get_sink(sink))
        except Exception as e:  # a file that cannot be opened, an unknown name
            _warn_once(f"events: {ENV_TORCHX_EVENTS}={sink}: {e}")
    return handlers


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        import logging

        logging.getLogger(__name__).warning("%s", message)
