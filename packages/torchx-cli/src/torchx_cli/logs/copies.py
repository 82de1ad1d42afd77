"""Finds the plugin that saves logs in the sinks ``[log_sink:NAME]`` and reads the copies."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from torchx_cli.logs.replicas import LogSource, described_replicas
from torchx_runner.config import api as config
from torchx_specs.errors import RequestError, one_line
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import ALL

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.plugins.factories import LogCopies

logger = logging.getLogger(__name__)


def log_copies() -> LogCopies | None:
    """Return what saves logs in the configured sinks and reads the copies; None without sinks.

    A missing plugin is a warning, because a job must not fail for the copy of its logs.
    """
    try:
        return _open()
    except RequestError as e:
        logger.warning("%s", e)
        return None


def required_copies() -> LogCopies:
    """Return what saves logs in the configured sinks and reads the copies.

    Raises:
        RequestError: The plugin is missing, or the configuration has no usable log sink.
    """
    copies = _open()
    if copies is None:
        raise RequestError(
            "no log sink is configured; add a section such as [log_sink:disk] with the"
            " line 'url = file:///data/logs' to .torchxconfig"
        )
    return copies


def save_logs(runner: Runner, app_handle: str, copies: LogCopies) -> None:
    """Begin to save the logs of an app that has started; a failure is a warning."""
    try:
        copies.start(runner, app_handle, described_replicas(runner, LogSource(app_handle)))
    except Exception as e:  # an error of the copy must not affect the job
        logger.warning("the logs of %s are not saved: %s", app_handle, one_line(e))


def _open() -> LogCopies | None:
    sections = config.plugin_sections("log_sink")
    urls = {name: section["url"] for name, section in sections.items() if section.get("url")}
    if not urls:
        return None
    plugins = get_manager().log_sinks()
    record = plugins.find(ALL)
    if record is None:
        hint = plugins.install_hint(ALL)
        raise RequestError(f"[log_sink:{next(iter(urls))}]: no plugin saves logs{hint}")
    copies: LogCopies = record.load()(urls)
    return copies if copies.sinks else None
