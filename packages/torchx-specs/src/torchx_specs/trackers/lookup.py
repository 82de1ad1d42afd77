"""Find trackers by name, and pass their names and configurations from the launcher to the job.

The job's environment has them: ``TORCHX_TRACKERS=fsspec,mlflow`` and
``TORCHX_TRACKER_FSSPEC_CONFIG=...``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import PluginError, TorchXError, TrackerError, nearest
from torchx_specs.settings import ENV_TORCHX_TRACKERS, tracker_config_env_var_name
from torchx_specs.text_values import TRUE_VALUES, split_list

if TYPE_CHECKING:
    from torchx_specs.trackers.api import TrackerBase

#: If set to 1, a tracker that cannot be created or that fails also fails the job.
ENV_TORCHX_TRACKER_STRICT = "TORCHX_TRACKER_STRICT"

TrackerFactory = Callable[["str | None"], "TrackerBase"]


def tracker_names(text: str) -> list[str]:
    """Return the names in a list such as ``fsspec,mlflow``, without duplicates.

    >>> tracker_names("fsspec, mlflow,,fsspec")
    ['fsspec', 'mlflow']
    """
    return [name for name in dict.fromkeys(split_list(text)) if name]


def find_factory(name: str) -> TrackerFactory:
    """Return the factory of a tracker.

    Args:
        name: Name under which a plugin registers it, or ``module:attribute``.

    Raises:
        TrackerError: No tracker has that name, or its plugin cannot be imported.
    """
    from torchx_specs.plugins.records import load_object

    try:
        if ":" in name:
            found: Any = load_object(name, f"tracker '{name}'")
        else:
            found = _registered()[name].load()
    except KeyError:
        raise TrackerError(unknown_tracker(name)) from None
    except PluginError as e:
        raise TrackerError(str(e)) from e
    if not callable(found):
        raise TrackerError(f"tracker '{name}' must be a factory, not a {type(found).__name__}")
    factory: TrackerFactory = found
    return factory


def unknown_tracker(name: str) -> str:
    """Return the error message for a name that no tracker has."""
    known = sorted(_registered())
    return (
        f"unknown tracker '{name}';{nearest(name, known)} installed trackers:"
        f" {', '.join(known) or 'none'}; name your own factory as module:attribute"
    )


def build_tracker(name: str, config: str | None) -> TrackerBase:
    """Return a new tracker.

    Args:
        name: See :func:`find_factory`.
        config: Argument of its factory, for many trackers the path of a file.

    Raises:
        TrackerError: No tracker has that name, or it refuses its configuration.
    """
    from torchx_specs.trackers.api import TrackerBase

    factory = find_factory(name)
    try:
        made = factory(config)
    except TorchXError:
        raise
    except Exception as e:
        # without the configuration, which may contain credentials
        raise TrackerError(f"tracker '{name}' cannot be created: {type(e).__name__}: {e}") from e
    if not isinstance(made, TrackerBase):
        raise TrackerError(f"the factory of tracker '{name}' returned a {type(made).__name__}")
    return made


def build_trackers(
    factory_and_config: Mapping[str, str | None], *, strict: bool | None = None
) -> list[TrackerBase]:
    """Return new trackers; a tracker that cannot be created is left out with a warning.

    Args:
        factory_and_config: Configurations by name.
        strict: Raise instead of leaving a tracker out (None: as ``$TORCHX_TRACKER_STRICT``).

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
    """Return the configuration of a tracker, from either spelling of its variable.

    For ``my-tracker`` these are ``TORCHX_TRACKER_MY_TRACKER_CONFIG``, and
    ``TORCHX_TRACKER_MY-TRACKER_CONFIG``, which older launchers set.
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


def resolve_configs(
    names: Mapping[str, str | None],
    sections: Mapping[str, Mapping[str, str | None]],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str | None]:
    """Return the launcher's trackers with their configurations.

    ``TORCHX_TRACKERS`` of the launcher replaces the names in its files. A configuration in its
    environment wins over one in a file.

    Args:
        names: Section ``[torchx:tracker]``: the keys are names. A value ``module:attribute`` is the
            factory, and becomes the name in the job.
        sections: Sections ``[tracker:NAME]`` by name. The key ``config`` is the configuration. If
            it is missing, the other keys are, for a tracker whose configuration can be inlined.
        environ: The launcher's environment (default: of this process).
    """
    env = os.environ if environ is None else environ
    if env.get(ENV_TORCHX_TRACKERS, "").strip():
        chosen = {name: names.get(name) for name in tracker_names(env[ENV_TORCHX_TRACKERS])}
    else:
        chosen = {name.strip(): value for name, value in names.items()}
    resolved: dict[str, str | None] = {}
    for name, value in chosen.items():
        factory = value.strip() if value and ":" in value else name
        section = sections.get(name, {})
        resolved[factory] = (
            config_from_environ(name, env)
            or section.get("config")
            or _config_from_keys(factory, section)
        )
    return resolved


def _config_from_keys(name: str, section: Mapping[str, str | None]) -> str | None:
    """Return the other keys of a section as an inlined configuration, if the tracker accepts it."""
    lines = [f"{key}={value}" for key, value in section.items() if key != "config" and value]
    try:
        if not lines or not callable(getattr(find_factory(name), "inline_config", None)):
            return None
    except TrackerError:
        return None
    from torchx_specs.trackers.inline import to_data_uri

    return to_data_uri("\n".join(lines))


def job_environment(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment variables by which a job finds the launcher's trackers.

    Configurations in files are inlined if the tracker supports it (:func:`inline_config`). A name
    that is not installed here is passed on, because the job's image may have it. So is
    ``TORCHX_TRACKER_STRICT=1``.

    Args:
        configs: Configurations by name, from :func:`resolve_configs`.

    Raises:
        TrackerError: Two names have the same variable.
    """
    if not configs:
        return {}
    variables = {ENV_TORCHX_TRACKERS: ",".join(configs)}
    if is_strict():
        variables[ENV_TORCHX_TRACKER_STRICT] = "1"
    owner: dict[str, str] = {}
    for name, config in configs.items():
        if not config:
            continue
        variable = tracker_config_env_var_name(name)
        if variable in owner:
            raise TrackerError(
                f"trackers '{owner[variable]}' and '{name}' both have their configuration in"
                f" {variable}: rename one"
            )
        owner[variable] = name
        variables[variable] = inline_config(name, config)
    return variables


def inline_config(name: str, config: str) -> str:
    """Return a configuration that does not need the launcher's files, if the tracker can make one.

    The factory of such a tracker has an attribute ``inline_config``: a function that returns the
    replacement of a configuration, such as a ``data:`` URI of a file's text.

    Args:
        name: The tracker.
        config: Its configuration.
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
