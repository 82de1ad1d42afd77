"""The factories of trackers, and the trackers' names and configurations in a job.

The names and configurations are in the job's environment: ``TORCHX_TRACKERS=fsspec,mlflow`` and
``TORCHX_TRACKER_FSSPEC_CONFIG=...``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import PluginError, TrackerError, nearest
from torchx_specs.text_values import TRUE_VALUES, split_list

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import TrackerFactory

#: Environment variable: if its value is true, the failure of a tracker, or of a tracker's creation,
#: fails the job.
ENV_TORCHX_TRACKER_STRICT = "TORCHX_TRACKER_STRICT"
#: Environment variable: if it is set, a tracker that is not installed is left out silently.
ENV_TORCHX_TRACKER_OPTIONAL = "TORCHX_TRACKER_OPTIONAL"


def tracker_names(text: str) -> list[str]:
    """Return the names in a list such as ``fsspec,mlflow``, without duplicates.

    >>> tracker_names("fsspec, mlflow,,fsspec")
    ['fsspec', 'mlflow']
    """
    return [name for name in dict.fromkeys(split_list(text)) if name]


def find_factory(name: str) -> TrackerFactory:
    """Return the factory of an installed tracker, or import the factory ``module:attribute``.

    Raises:
        TrackerError: No tracker has that name, its module cannot be imported, or the imported
            object is not callable.
    """
    from torchx_specs.plugins.manager import get_manager
    from torchx_specs.plugins.records import load_object

    try:
        if ":" in name:
            found: Any = load_object(name, f"tracker '{name}'")
        else:
            installed = get_manager().trackers()
            plugin = installed.find(name)
            if plugin is None:
                if install := installed.install_hint(name):
                    raise TrackerError(f"tracker '{name}' is not installed{install}")
                raise TrackerError(
                    f"unknown tracker '{name}';{nearest(name, installed)} use module:attribute, or"
                    f" an installed tracker: {', '.join(sorted(installed)) or 'none'}"
                )
            found = plugin.load()
    except PluginError as e:
        raise TrackerError(str(e)) from e
    if not callable(found):
        raise TrackerError(f"tracker '{name}' must be a factory, not a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def tracker_config_env_var_name(tracker: str) -> str:
    """Return the name of the environment variable with the configuration of ``tracker``.

    ``my-tracker`` becomes ``TORCHX_TRACKER_MY_TRACKER_CONFIG``: characters that a shell does not
    allow in a name become ``_``.
    """
    name = "".join(c if c.isalnum() and c.isascii() else "_" for c in tracker.upper())
    return f"TORCHX_TRACKER_{name}_CONFIG"


def config_from_environ(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the configuration of a tracker, from either of two environment variables.

    For ``my-tracker`` these are ``TORCHX_TRACKER_MY_TRACKER_CONFIG``, and
    ``TORCHX_TRACKER_MY-TRACKER_CONFIG``, which launchers of older TorchX releases set.
    """
    older = f"TORCHX_TRACKER_{name.upper()}_CONFIG"
    return environ.get(tracker_config_env_var_name(name)) or environ.get(older) or None


def is_strict() -> bool:
    """Return True if a failing tracker fails the job."""
    return os.environ.get(ENV_TORCHX_TRACKER_STRICT, "").strip().lower() in TRUE_VALUES
