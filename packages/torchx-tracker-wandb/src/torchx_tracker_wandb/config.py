"""The tracker's configuration: the project, entity and mode of W&B, and W&B's directory.

::

    # .torchxconfig
    [tracker:wandb]
    type=wandb
    entity=my-team
    project=my-project

The configuration has no API key. W&B reads the key from ``WANDB_API_KEY`` or from its own files.
"""

from __future__ import annotations

from torchx_kit.trackers.inline import from_data_uri
from torchx_specs.errors import nearest
from torchx_specs.trackers.api import TrackerValueError

KEYS = ("dir", "entity", "mode", "project")
MODES = ("online", "offline", "disabled")


def read_config(config: str | None) -> dict[str, str]:
    """Return the settings: any of ``dir``, ``entity``, ``mode`` and ``project``.

    Args:
        config: None or an empty string uses W&B's environment variables and settings files.
            Otherwise ``key=value`` lines in a ``data:`` URI, or such lines separated by ``;``.

    Raises:
        TrackerValueError: A line has no ``=``, or a setting is unknown or invalid.
    """
    if not config or not config.strip():
        return {}
    text = from_data_uri(config)
    lines = (config.replace(";", "\n") if text is None else text).splitlines()
    settings: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines)):
        key, separator, value = (part.strip() for part in line.partition("="))
        if not separator:
            raise TrackerValueError(
                f"configuration of the wandb tracker: '{line}' has no '='; write key=value pairs,"
                f" separated by ';'; valid keys: {', '.join(KEYS)}"
            )
        if key not in KEYS:
            raise TrackerValueError(
                f"configuration of the wandb tracker: unknown setting '{key}';{nearest(key, KEYS)}"
                f" valid settings: {', '.join(KEYS)}"
            )
        if value:
            settings[key] = value
    mode = settings.get("mode", "online")
    if mode not in MODES:
        raise TrackerValueError(
            f"configuration of the wandb tracker: mode '{mode}' is invalid;{nearest(mode, MODES)}"
            f" valid modes: {', '.join(MODES)}"
        )
    return settings


def inline_config(config: str) -> str:
    """Return the configuration unchanged, because it does not refer to files of this machine."""
    return config
