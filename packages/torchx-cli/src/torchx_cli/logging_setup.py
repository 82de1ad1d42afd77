"""What the command says beside its result: log lines on standard error."""

from __future__ import annotations

import logging
import os
import sys
import time

from torchx_cli.output.colors import paint
from torchx_specs.errors import RequestError, nearest

_LEVELS = ("CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING")
# what pip and distributions of Linux name the folders they install into
_INSTALLED = {"site-packages", "dist-packages"}


class Formatter(logging.Formatter):
    """``torchx 2026-11-21 01:19:58 INFO     message``."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        head = paint(f"torchx {when} {record.levelname:<8}", "BLUE", sys.stderr)
        text = f"{head} {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class Handler(logging.StreamHandler):  # type: ignore[type-arg] # not subscriptable in 3.10
    """Writes to what is standard error at the time of writing."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(Formatter())
        self.addFilter(is_shown)

    @property
    def stream(self) -> object:
        return sys.stderr


def is_shown(record: logging.LogRecord) -> bool:
    """Returns whether a record that passes the level is of interest.

    Libraries narrate at INFO what is their own affair (which file credentials came from, that a
    connection was opened). What is installed and neither TorchX nor a plugin shows warnings only,
    unless all of DEBUG is asked for. Code that is not installed is the user's own, and shows.
    """
    if record.levelno >= logging.WARNING or logging.getLogger().level < logging.INFO:
        return True
    package = record.name.partition(".")[0]
    if package.startswith("torchx") or _INSTALLED.isdisjoint(record.pathname.split(os.sep)):
        return True
    from torchx_specs.plugins.entry_points import entry_points

    return any(package == ep.value.partition(":")[0].partition(".")[0] for ep in entry_points())


def configure(level: str) -> None:
    """Sends log records of at least ``level`` to standard error; see :func:`is_shown`.

    Args:
        level: the name of a level, in any case, or its number

    Raises:
        RequestError: there is no such level
    """
    name = level.strip().upper()
    if not name.isdecimal() and name not in _LEVELS:
        raise RequestError(
            f"unknown log level '{level}';{nearest(level, _LEVELS)}"
            f" levels: {', '.join(sorted(_LEVELS))}"
        )
    root = logging.getLogger()
    root.setLevel(int(name) if name.isdecimal() else name)
    if not any(isinstance(handler, Handler) for handler in root.handlers):
        root.addHandler(Handler())
