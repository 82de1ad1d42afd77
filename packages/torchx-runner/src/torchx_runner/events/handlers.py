"""Where events can go."""

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
    """Returns the handler of a destination; a plugin's of that name wins.

    Raises:
        KeyError: there is no such destination
        PluginError: two plugins claim it, or it cannot be loaded
    """
    catalog = plugin_manager().event_handlers()
    record = catalog.find(destination)
    if record is not None:
        handler = record.load()()
        if not isinstance(handler, logging.Handler):
            raise TypeError(
                f"event handler '{destination}' of {record.origin} is no logging.Handler:"
                f" {handler!r:.100}"
            )
        return handler
    if destination not in _log_handlers:
        known = sorted({*_log_handlers, *catalog.names()})
        raise KeyError(
            f"unknown event destination '{destination}';{nearest(destination, known)}"
            f" there are: {', '.join(known)}"
        )
    return _log_handlers[destination]


def get_sink(name: str) -> logging.Handler:
    """Returns the handler that ``$TORCHX_EVENTS`` names: ``jsonl:PATH`` or a destination.

    Raises:
        KeyError: there is no such destination
        OSError: the file cannot be opened
    """
    if name.startswith(_JSONL):
        return JsonLinesHandler(os.path.expanduser(name[len(_JSONL) :]))
    return get_logging_handler(name)


class JsonLinesHandler(logging.Handler):
    """Appends each event to a file as one line; the file is readable by its owner only.

    Raises:
        OSError: the file cannot be opened
    """

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line in one piece, so that processes that share the file do not mix theirs."""
        os.write(self._fd, (record.getMessage() + "\n").encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Closes the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        super().close()
