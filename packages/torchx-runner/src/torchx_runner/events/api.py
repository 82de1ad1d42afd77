"""Events: records of the calls of the runner's methods.

The runner sends events to the destination ``null``, which discards them. To receive them, register
an event handler named ``null`` in a plugin
(:func:`torchx_specs.hookspecs.torchx_event_handlers`), or set ``$TORCHX_EVENTS``:

- ``jsonl:PATH`` appends each event to a file as a line of JSON; a new file is readable only by its
  owner
- any other value is the name of an event handler (``console`` writes to standard error)

Without a handler, an event costs a few microseconds. Values of options that look like secrets
(``token``, ``password``, ``api_key`` ...) are masked.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchx_runner.installed_schedulers import plugin_manager
from torchx_runner.session_id import get_session_id_or_create_new
from torchx_specs.errors import ConfigError, PluginError

if TYPE_CHECKING:
    import logging
    from types import TracebackType

    from typing_extensions import Self

    from torchx_specs.plugins.catalog import Catalog
    from torchx_specs.plugins.records import EventHandlerPlugin
    from torchx_specs.workspace.spec import Workspace

#: The environment variable that names a destination of events.
ENV_TORCHX_EVENTS = "TORCHX_EVENTS"


class SourceType(str, Enum):
    """The source of an event; the runner always records ``UNKNOWN``."""

    UNKNOWN = "<unknown>"
    INTERNAL = "INTERNAL"
    EXTERNAL = "EXTERNAL"


@dataclass
class TorchxEvent:
    """One call of the runner.

    Args:
        session: The session id of this process (not the name of the runner's session).
        scheduler: Name of the scheduler; empty if there is none.
        api: Name of the runner's method (``run``, ``status`` ...).
        app_id: The id of the app, if known.
        app_image: The image of the first role.
        app_metadata: The metadata of the app.
        runcfg: The scheduler's options as JSON, with secrets masked.
        raw_exception: The traceback, if the call failed.
        source: The source of the event; the runner leaves it unknown.
        cpu_time_usec: CPU time of this process during the call, in microseconds.
        wall_time_usec: Duration of the call, in microseconds.
        start_epoch_time_usec: The start of the call, in microseconds since 1970.
        workspace: The workspace of the request.
        exception_type: The class of the exception, if the call failed.
        exception_message: The text of the exception.
        exception_source_location: The place of the exception, as JSON with ``filename``,
            ``lineno`` and ``name``.
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
        """Convert the result of :meth:`serialize` back to the event.

        Raises:
            TypeError: ``data`` is neither text nor an event, or its fields are not those of an
                event.
            ValueError: The text is not JSON.
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
        """Return the event as one line of JSON."""
        import json

        return json.dumps(asdict(self))


class log_event:  # noqa: N801 - a documented name, used as a context manager
    """Records a call as an event when the context ends, successfully or not.

    ``_torchx_event`` is the event; the code in the context may set its attributes.

    Args:
        api: Name of the runner's method.
        scheduler: Name of the scheduler.
        app_id: The id of the app.
        app_image: The image of the first role.
        app_metadata: The metadata of the app.
        runcfg: The scheduler's options, as a mapping or as JSON text.
        workspace: The workspace.
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
            except Exception as e:  # such as options that cannot be converted to JSON
                _warn_once(f"event of '{event.api}' is incomplete: {type(e).__name__}: {e}")
        record(event)


def record(event: TorchxEvent, destination: str = "null") -> None:
    """Send an event to a destination; an error of the destination's handlers is only logged.

    Raises:
        KeyError: The destination is unknown.
    """
    if not _has_listeners(destination):
        return
    log = _get_or_create_logger(destination)
    try:
        log.info(event.serialize())
    except Exception as e:  # an error of a handler must not end the call
        _warn_once(f"event of '{event.api}' cannot be recorded: {type(e).__name__}: {e}")


# For each destination, the handlers and the value of $TORCHX_EVENTS that configured its logger.
_configured_from: dict[str, tuple[Catalog[EventHandlerPlugin] | None, str]] = {}
_own_handlers: dict[str, list[logging.Handler]] = {}
_configuring = threading.RLock()  # reentrant: making a handler may record an event


def _handlers_of_plugins() -> Catalog[EventHandlerPlugin] | None:
    try:
        return plugin_manager().event_handlers()
    except ConfigError:  # the calls that need the configuration report this error
        return None


def _has_listeners(destination: str) -> bool:
    """Return False if the destination is ``null`` and no handler receives its events."""
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
    """Return the logger of a destination, with its handlers.

    Raises:
        KeyError: The destination is unknown.
    """
    import logging

    setting = os.environ.get(ENV_TORCHX_EVENTS, "") if destination == "null" else ""
    configured_from = (_handlers_of_plugins(), setting)
    log = logging.getLogger(_logger_name(destination))
    with _configuring:
        if _configured_from.get(destination) != configured_from:
            log.setLevel(logging.INFO)
            log.propagate = False
            for handler in _own_handlers.pop(destination, ()):
                log.removeHandler(handler)
            _own_handlers[destination] = _make_handlers(destination, setting)
            for handler in _own_handlers[destination]:
                log.addHandler(handler)
            _configured_from[destination] = configured_from
    return log


def _make_handlers(destination: str, setting: str) -> list[logging.Handler]:
    from torchx_runner.events.handlers import get_logging_handler, get_sink

    handlers: list[logging.Handler] = []
    try:
        handlers.append(get_logging_handler(destination))
    except Exception as e:
        if isinstance(e, KeyError) and not isinstance(e, PluginError):
            raise  # the destination is unknown
        # A plugin's handler that cannot be made must not end the runner's call.
        _warn_once(f"events: {type(e).__name__}: {e}")
    if setting:
        try:
            handlers.append(get_sink(setting))
        except Exception as e:  # such as a file that cannot be opened
            _warn_once(f"events: {ENV_TORCHX_EVENTS}={setting}: {e}")
    return handlers


@functools.cache  # warn only once of each problem
def _warn_once(message: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s", message)
