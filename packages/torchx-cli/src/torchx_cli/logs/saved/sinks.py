"""The log sinks in the section ``[log_sinks]`` of ``.torchxconfig``."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx_runner.config import api as config
from torchx_specs.errors import RequestError, one_line
from torchx_specs.plugins.manager import get_manager

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import LogSink

logger = logging.getLogger(__name__)

_SECTION = "log_sinks"
# The sink that handles every scheme that has no sink of its own.
_ANY_SCHEME = "fsspec"


@dataclass(frozen=True)
class ConfiguredSink:
    """A log sink with its name in the configuration.

    Args:
        name: The key in ``[log_sinks]``.
        url: The URL in ``[log_sinks]``.
        sink: The sink.
    """

    name: str
    url: str
    sink: LogSink

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"


def has_sinks() -> bool:
    """Return True if the configuration has a log sink."""
    return bool(_urls())


def configured_sinks() -> list[ConfiguredSink]:
    """Return the log sinks in the configuration.

    A sink that cannot be created causes a warning and no error, because a job must not fail for
    the copy of its logs.
    """
    found = []
    for name, url in _urls().items():
        try:
            found.append(ConfiguredSink(name, url, _create(url)))
        except Exception as e:  # a plugin may raise any exception
            logger.warning("[%s] %s is ignored: %s", _SECTION, name, one_line(e))
    return found


def required_sinks() -> list[ConfiguredSink]:
    """Return the log sinks in the configuration.

    Raises:
        RequestError: The configuration has no usable log sink.
    """
    found = configured_sinks()
    if not found:
        raise RequestError(
            f"no log sink is configured; add the section [{_SECTION}] with a line such as"
            " 'disk = file:///data/logs' to .torchxconfig"
        )
    return found


def _urls() -> dict[str, str]:
    """Return the URLs of the sinks by name, without empty ones."""
    values = [v for v in config.list_values() if v.section == _SECTION and v.effective]
    return {value.key: value.value.strip() for value in values if value.value.strip()}


def _create(url: str) -> LogSink:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise RequestError(
            f"'{url}' is not a URL; write one such as file:///data/logs or s3://bucket/prefix"
        )
    sinks = get_manager().log_sinks()
    record = sinks.find(scheme) or sinks.find(_ANY_SCHEME)
    if record is None:
        command = sinks.installable.get(scheme) or sinks.installable.get(_ANY_SCHEME)
        hint = f"; run: {command}" if command else ""
        raise RequestError(f"no plugin handles URLs that begin with {scheme}://{hint}")
    sink: LogSink = record.load()(url)
    return sink
