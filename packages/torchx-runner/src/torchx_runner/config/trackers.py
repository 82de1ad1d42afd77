"""Reads the configuration of the trackers that jobs use."""

from __future__ import annotations

from torchx_runner.config import api as config


def get_configured_trackers() -> dict[str, str | None]:
    """Return the trackers and their configurations, from the environment and ``.torchxconfig``.

    The configuration of a tracker may be None.

    See :func:`torchx_runner.tracker_configs.resolve_configs` for the precedence.

    Raises:
        ConfigError: A configuration file is malformed.
    """
    from torchx_runner.tracker_configs import resolve_configs

    names = config.get_configs(prefix="torchx", name="tracker")
    return resolve_configs(names, config.load_sections(prefix="tracker"))
