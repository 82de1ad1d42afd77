"""Creates the logging handlers that receive events."""

from __future__ import annotations

import logging
import os

from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import nearest

_JSONL = "jsonl:"

#: Destinations that need no plugin.
_log_handlers: dict[str, logging.Handler] = {
    "console": logging.StreamHandler(),
    "null": logging.NullHandler(),
}


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """Return the handler of a destination; a plugin's handler replaces a built-in one.

    Raises:
        KeyError: The destination is unknown.
        PluginError: Two plugins claim the destination, or the handler cannot be loaded.
        TypeError: The plugin's handler is not a :class:`logging.Handler`.
    """
    catalog = plugin_manager().event_handlers()
    record = catalog.find(destination)
    if record is not None:
        handler = record.load()()
        if not isinstance(handler, logging.Handler):
            raise TypeError(
                f"event handler '{destination}' of {record.origin} is not a logging.Handler:"
                f" {handler!r:.100}"
            )
        return handler
    if destination not in _log_handlers:
        known = sorted({*_log_handlers, *catalog.names()})
        raise KeyError(
            f"unknown event destination '{destination}';{nearest(destination, known)}"
            f" destinations: {', '.join(known)}"
        )
    return _log_handlers[destination]


def get_sink(name: str) -> logging.Handler:
    """Return the handler for a value of ``$TORCHX_EVENTS``: ``jsonl:PATH`` or a destination.

    Raises:
        OSError: The file cannot be opened.
        Exception: See :func:`get_logging_handler`.
    """
    if name.startswith(_JSONL):
        return JsonLinesHandler(os.path.expanduser(name[len(_JSONL) :]))
    return get_logging_handler(name)


class JsonLinesHandler(logging.Handler):
    """Appends each event to a file as one line; a new file is readable only by its owner.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line in one call, so that the lines of several processes do not mix."""
        os.write(self._fd, (record.getMessage() + "\n").encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()
