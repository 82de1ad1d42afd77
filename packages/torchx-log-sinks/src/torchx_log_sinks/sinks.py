"""Opens the log sinks in the sections ``[log_sink:NAME]`` of ``.torchxconfig``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx_specs.errors import RequestError, one_line
from torchx_specs.plugins.manager import get_manager

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import LogSink

logger = logging.getLogger(__name__)

# The sink that handles every scheme that has no sink of its own.
_ANY_SCHEME = "fsspec"


@dataclass(frozen=True)
class ConfiguredSink:
    """A log sink with its name in the configuration.

    Args:
        name: NAME of the section ``[log_sink:NAME]``.
        url: The URL in the section.
        sink: The sink.
    """

    name: str
    url: str
    sink: LogSink

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"


def open_sinks(urls: Mapping[str, str]) -> list[ConfiguredSink]:
    """Return the log sinks of some URLs.

    A sink that cannot be created causes a warning and no error, because a job must not fail for
    the copy of its logs.

    Args:
        urls: The URLs by the names of the sections.
    """
    found = []
    for name, url in urls.items():
        try:
            found.append(ConfiguredSink(name, url, _create(url)))
        except Exception as e:  # a plugin may raise any exception
            logger.warning("[log_sink:%s] is ignored: %s", name, one_line(e))
    return found


def _create(url: str) -> LogSink:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise RequestError(
            f"'{url}' is not a URL; write one such as file:///data/logs or s3://bucket/prefix"
        )
    sinks = get_manager().log_sinks()
    record = sinks.find(scheme) or sinks.find(_ANY_SCHEME)
    if record is None:
        command = sinks.installable.get(scheme)
        hint = f"; run: {command}" if command else ""
        raise RequestError(f"no plugin handles URLs that begin with {scheme}://{hint}")
    sink: LogSink = record.load()(url)
    return sink
