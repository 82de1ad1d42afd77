"""Creates trackers from their names and configurations."""

from __future__ import annotations

import os
from collections.abc import Mapping

from torchx_kit.trackers.lookup import (
    ENV_TORCHX_TRACKER_OPTIONAL,
    config_from_environ,
    find_factory,
    is_strict,
    tracker_names,
)
from torchx_specs.errors import TorchXError, TrackerError
from torchx_specs.settings import ENV_TORCHX_TRACKERS
from torchx_specs.trackers.api import TrackerBase


def build_tracker(name: str, config: str | None) -> TrackerBase:
    """Return a new tracker.

    Args:
        name: Name of an installed tracker, or ``module:attribute`` of a factory.
        config: Configuration that the factory receives; for many trackers the path of a file.

    Raises:
        TrackerError: No tracker has that name, or the tracker refuses ``config``.
    """
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
        TrackerError: A tracker cannot be created, and ``strict`` or the variable requires an error.
    """
    made = []
    for name, config in factory_and_config.items():
        try:
            made.append(build_tracker(name, config))
        except TorchXError as e:
            if is_strict() if strict is None else strict:
                raise
            import logging

            log = logging.getLogger("torchx_tracker")
            optional = os.environ.get(ENV_TORCHX_TRACKER_OPTIONAL)
            level = logging.DEBUG if optional else logging.WARNING
            log.log(level, "tracker '%s' is left out: %s", name, e)
    return made


def trackers_from_environ(environ: Mapping[str, str] | None = None) -> list[TrackerBase]:
    """Return new trackers for the names in a job's environment (default: ``os.environ``)."""
    return build_trackers(configs_from_environ(environ))


def configs_from_environ(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Return the configurations of the trackers in an environment (default: ``os.environ``)."""
    env = os.environ if environ is None else environ
    names = tracker_names(env.get(ENV_TORCHX_TRACKERS, ""))
    return {name: config_from_environ(name, env) for name in names}
