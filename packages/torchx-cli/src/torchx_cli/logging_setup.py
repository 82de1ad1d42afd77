"""Sets up logging: the command's log messages go to standard error."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from typing import TextIO

from torchx_cli.output.colors import is_terminal, paint
from torchx_cli.output.terminal import hidden_region, safe_message
from torchx_specs.errors import RequestError, nearest, one_line

logger = logging.getLogger(__name__)

_LEVELS = ("CRITICAL", "DEBUG", "ERROR", "INFO", "NOTSET", "WARNING")
# The colour of a line on a terminal, for records up to a level.
_COLORS = {logging.INFO: "BLUE", logging.WARNING: "ORANGE", logging.ERROR: "RED"}
# The folders that pip and Linux distributions install into.
_INSTALLED = {"site-packages", "dist-packages"}


class Formatter(logging.Formatter):
    """Formats records as ``torchx 2026-11-21 01:19:58 INFO     message``, with secrets masked.

    On a terminal, the form is ``torchx: message``; its colour is the level.
    """

    def format(self, record: logging.LogRecord) -> str:
        from torchx_specs.redaction import masked_text  # many commands log nothing

        text = record.getMessage()
        if is_terminal(sys.stderr):
            level = min((n for n in _COLORS if record.levelno <= n), default=logging.ERROR)
            word = "" if level == logging.INFO else f" {record.levelname.lower()}"
            head = paint(f"torchx{word}:", _COLORS[level], sys.stderr)
        else:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
            head = f"torchx {when} {record.levelname:<8}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return f"{head} {safe_message(masked_text(text))}"


class Handler(logging.StreamHandler):  # type: ignore[type-arg] # not subscriptable in 3.10
    """Writes to the current value of ``sys.stderr``, which tests and callers may replace."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(Formatter())
        self.addFilter(is_shown)

    @property
    def stream(self) -> object:
        return sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        with hidden_region(self.stream):
            super().emit(record)


def is_shown(record: logging.LogRecord) -> bool:
    """Return True if a record is shown, given that its level is high enough.

    Libraries log internal details at INFO, such as an opened connection. An installed package that
    is neither TorchX nor a plugin therefore shows warnings only, unless the level is DEBUG. Code
    that is not installed is the user's own: all its records are shown.
    """
    if record.levelno >= logging.WARNING or logging.getLogger().level < logging.INFO:
        return True
    package = record.name.partition(".")[0]
    if package.startswith("torchx") or _INSTALLED.isdisjoint(record.pathname.split(os.sep)):
        return True
    from torchx_specs.plugins.entry_points import entry_points

    return any(package == ep.value.partition(":")[0].partition(".")[0] for ep in entry_points())


def configure(level: str) -> None:
    """Send log records of at least ``level`` to standard error; see :func:`is_shown`.

    Args:
        level: The name of a level, in upper or lower case, or its number.

    Raises:
        RequestError: The level is unknown.
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
    warnings.showwarning = _log_warning


def _log_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Log a Python warning as one line; Python itself would print a line of source code, too."""
    if file is None:
        logger.warning("%s", one_line(str(message)))
        logger.debug("%s at %s:%d", category.__name__, filename, lineno)
    else:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
