"""The tracker that the command gives to local jobs if none is configured.

It keeps the records in files below ``$TORCHX_HOME/tracker``. Requests of the Python API never have
it. ``TORCHX_DEFAULT_TRACKER=0`` turns it off.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from torchx_kit.home import home_path
from torchx_kit.trackers.inline import to_data_uri
from torchx_kit.trackers.lookup import ENV_TORCHX_TRACKER_OPTIONAL, tracker_config_env_var_name
from torchx_runner.config import api as config
from torchx_specs.plugins.manager import get_manager
from torchx_specs.settings import ENV_TORCHX_TRACKERS

#: Name of the variable that turns the tracker off if its value is ``0``.
ENV_TORCHX_DEFAULT_TRACKER = "TORCHX_DEFAULT_TRACKER"
_TRACKER = "fsspec"
_SCHEDULER = "local_cwd"


def job_variables(scheduler: str) -> Mapping[str, str]:
    """Return the variables that configure the tracker in a job; empty for most schedulers."""
    if scheduler != _SCHEDULER or _is_off():
        return {}
    return {
        ENV_TORCHX_TRACKERS: _TRACKER,
        # The job's Python may lack the tracker, which nobody has asked for.
        ENV_TORCHX_TRACKER_OPTIONAL: "1",
        tracker_config_env_var_name(_TRACKER): _config(),
    }


def readable_trackers() -> dict[str, str | None]:
    """Return the configured trackers, or else the default one if it has records."""
    configured = config.get_configured_trackers()
    if configured or _is_off() or not os.path.isdir(home_path("tracker")):
        return configured
    return {_TRACKER: _config()} if get_manager().trackers().find(_TRACKER) else {}


def _is_off() -> bool:
    return os.environ.get(ENV_TORCHX_DEFAULT_TRACKER) == "0"


def _config() -> str:
    return to_data_uri(f"protocol=file\nroot_path={home_path('tracker')}\nauto_mkdir=true")
