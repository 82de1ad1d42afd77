"""Reads the configuration of the trackers that jobs use."""

from __future__ import annotations

from torchx_runner.config import api as config


def get_configured_trackers(*, profile: str | None = None) -> dict[str, str | None]:
    """Return the trackers and their configurations, from the environment and ``.torchxconfig``.

    The configuration of a tracker may be None. See
    :func:`torchx_runner.tracker_configs.resolve_configs` for the precedence.

    Args:
        profile: The profile; None means the profile of this process.

    Raises:
        ConfigError: A configuration file is malformed, or the profile is unknown.
    """
    from torchx_runner.tracker_configs import resolve_configs

    names = config.load_sections("torchx", profile=profile).get("tracker", {})
    return resolve_configs(names, config.load_sections("tracker", profile=profile))
