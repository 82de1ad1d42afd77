"""Find trackers by name, and pass their names and configurations from the launcher to the job.

The names and configurations are in the job's environment: ``TORCHX_TRACKERS=fsspec,mlflow`` and
``TORCHX_TRACKER_FSSPEC_CONFIG=...``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import PluginError, TorchXError, TrackerError, nearest
from torchx_specs.settings import ENV_TORCHX_TRACKERS, tracker_config_env_var_name
from torchx_specs.text_values import TRUE_VALUES, split_list

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import TrackerFactory
    from torchx_specs.trackers.api import TrackerBase

#: Environment variable: if its value is true, the failure of a tracker, or of a tracker's creation,
#: fails the job.
ENV_TORCHX_TRACKER_STRICT = "TORCHX_TRACKER_STRICT"


def tracker_names(text: str) -> list[str]:
    """Return the names in a list such as ``fsspec,mlflow``, without duplicates.

    >>> tracker_names("fsspec, mlflow,,fsspec")
    ['fsspec', 'mlflow']
    """
    return [name for name in dict.fromkeys(split_list(text)) if name]


def find_factory(name: str) -> TrackerFactory:
    """Return the factory of a tracker.

    Args:
        name: Name of an installed tracker, or ``module:attribute`` of a factory.

    Raises:
        TrackerError: No tracker has that name, or the tracker's plugin cannot be imported.
    """
    from torchx_specs.plugins.records import load_object

    try:
        if ":" in name:
            found: Any = load_object(name, f"tracker '{name}'")
        else:
            found = _registered()[name].load()
    except KeyError:
        known = sorted(_registered())
        raise TrackerError(
            f"unknown tracker '{name}';{nearest(name, known)} installed trackers:"
            f" {', '.join(known) or 'none'}; name your own factory as module:attribute"
        ) from None
    except PluginError as e:
        raise TrackerError(str(e)) from e
    if not callable(found):
        raise TrackerError(f"tracker '{name}' must be a factory, not a {type(found).__name__}")
    return found  # type: ignore[no-any-return]


def build_tracker(name: str, config: str | None) -> TrackerBase:
    """Return a new tracker.

    Args:
        name: Name of the tracker; see :func:`find_factory`.
        config: Configuration that the factory receives; for many trackers the path of a file.

    Raises:
        TrackerError: No tracker has that name, or the tracker refuses ``config``.
    """
    from torchx_specs.trackers.api import TrackerBase

    factory = find_factory(name)
    try:
        made = factory(config)
    except TorchXError:
        raise
    except Exception as e:
        # The message omits the configuration, which may contain credentials.
        raise TrackerError(f"tracker '{name}' cannot be created: {type(e).__name__}: {e}") from e
    if not isinstance(made, TrackerBase):
        raise TrackerError(f"the factory of tracker '{name}' returned a {type(made).__name__}")
    return made


def build_trackers(
    factory_and_config: Mapping[str, str | None], *, strict: bool | None = None
) -> list[TrackerBase]:
    """Return new trackers; a tracker that cannot be created is left out with a warning.

    Args:
        factory_and_config: Maps the name of each tracker to its configuration.
        strict: Raise an error instead of leaving a tracker out; None uses
            ``$TORCHX_TRACKER_STRICT``.

    Raises:
        TrackerError: ``strict`` is set and a tracker cannot be created.
    """
    made = []
    for name, config in factory_and_config.items():
        try:
            made.append(build_tracker(name, config))
        except TorchXError as e:
            if is_strict() if strict is None else strict:
                raise
            _warn("tracker '%s' is left out: %s", name, e)
    return made


def trackers_from_environ(environ: Mapping[str, str] | None = None) -> list[TrackerBase]:
    """Return new trackers for the names in a job's environment."""
    return build_trackers(configs_from_environ(environ))


def configs_from_environ(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the configurations of the trackers in an environment, by name."""
    env = os.environ if environ is None else environ
    names = tracker_names(env.get(ENV_TORCHX_TRACKERS, ""))
    return {name: config_from_environ(name, env) for name in names}


def config_from_environ(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the configuration of a tracker, from either of two environment variables.

    For ``my-tracker`` these are ``TORCHX_TRACKER_MY_TRACKER_CONFIG``, and
    ``TORCHX_TRACKER_MY-TRACKER_CONFIG``, which launchers of older TorchX releases set.
    """
    for variable in (tracker_config_env_var_name(name), f"TORCHX_TRACKER_{name.upper()}_CONFIG"):
        config = environ.get(variable)
        if config:
            return config
    return None


def is_strict(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a failing tracker fails the job."""
    env = os.environ if environ is None else environ
    return env.get(ENV_TORCHX_TRACKER_STRICT, "").strip().lower() in TRUE_VALUES


def inline_config(name: str, config: str) -> str:
    """Return a configuration that does not need the launcher's files, or else ``config`` itself.

    If the tracker's factory has an attribute ``inline_config``, that function converts ``config``,
    for example a file name to a ``data:`` URI with the file's text.

    Args:
        name: Name of the tracker.
        config: Configuration of the tracker in the launcher.
    """
    try:
        inline = getattr(find_factory(name), "inline_config", None)
    except TrackerError as e:
        _warn("%s; the job gets the configuration unchanged", e)
        return config
    return str(inline(config)) if callable(inline) else config


def _registered() -> Mapping[str, Any]:
    from torchx_specs.plugins.manager import get_manager

    return get_manager().trackers()


def _warn(message: str, *args: object) -> None:
    import logging

    logging.getLogger("torchx_specs.trackers").warning(message, *args)
