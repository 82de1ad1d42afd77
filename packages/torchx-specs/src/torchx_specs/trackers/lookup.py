"""Trackers by name: which are configured, how one is made, and what a job needs to find them.

Names and configurations travel from launcher to job in environment variables:
``TORCHX_TRACKERS=fsspec,mlflow`` and ``TORCHX_TRACKER_FSSPEC_CONFIG=...``.
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

#: Set to 1, a tracker that cannot be made or that fails takes the job down.
ENV_TORCHX_TRACKER_STRICT = "TORCHX_TRACKER_STRICT"

TrackerFactory = Callable[["str | None"], "TrackerBase"]


def tracker_names(text: str) -> list[str]:
    """Returns the names in a comma-separated list, each once.

    >>> tracker_names("fsspec, mlflow,,fsspec")
    ['fsspec', 'mlflow']
    """
    return [name for name in dict.fromkeys(split_list(text)) if name]


def find_factory(name: str) -> TrackerFactory:
    """Returns the factory of a tracker.

    Args:
        name: what a plugin registered it as, else ``module:attribute``

    Raises:
        TrackerError: there is none of that name, or it fails to import
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
        raise TrackerError(f"tracker '{name}' is no factory, but a {type(found).__name__}")
    factory: TrackerFactory = found
    return factory


def unknown_tracker(name: str) -> str:
    """Returns what there is to say about a name that no tracker has."""
    known = sorted(_registered())
    return (
        f"unknown tracker '{name}';{nearest(name, known)} installed trackers:"
        f" {', '.join(known) or 'none'}; a factory of your own is named as module:attribute"
    )


def build_tracker(name: str, config: str | None) -> TrackerBase:
    """Makes a tracker.

    Args:
        name: see :func:`find_factory`
        config: what its factory takes; for many the path of a file

    Raises:
        TrackerError: there is no such tracker, or it refuses its configuration
    """
    from torchx_specs.trackers.api import TrackerBase

    factory = find_factory(name)
    try:
        made = factory(config)
    except TorchXError:
        raise
    except Exception as e:
        # the configuration stays out of the text: it may hold credentials
        raise TrackerError(f"tracker '{name}' cannot be made: {type(e).__name__}: {e}") from e
    if not isinstance(made, TrackerBase):
        raise TrackerError(f"the factory of tracker '{name}' made a {type(made).__name__}")
    return made


def build_trackers(
    factory_and_config: Mapping[str, str | None], *, strict: bool | None = None
) -> list[TrackerBase]:
    """Makes trackers; one that cannot be made is left out with a warning.

    Args:
        factory_and_config: configurations by name
        strict: raise instead of leaving one out; None: as ``$TORCHX_TRACKER_STRICT`` has it

    Raises:
        TrackerError: ``strict``, and one cannot be made
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
    """Makes the trackers that a job's environment names, none if it names none."""
    return build_trackers(configs_from_environ(environ))


def configs_from_environ(environ: Mapping[str, str] | None = None) -> dict[str, str | None]:
    """Returns the configurations of the trackers that an environment names, by name."""
    env = os.environ if environ is None else environ
    names = tracker_names(env.get(ENV_TORCHX_TRACKERS, ""))
    return {name: config_from_environ(name, env) for name in names}


def config_from_environ(name: str, environ: Mapping[str, str]) -> str | None:
    """Returns the configuration of one tracker, from either spelling of its variable.

    For ``my-tracker`` that is ``TORCHX_TRACKER_MY_TRACKER_CONFIG``, else what older launchers set:
    ``TORCHX_TRACKER_MY-TRACKER_CONFIG``.
    """
    for variable in (tracker_config_env_var_name(name), f"TORCHX_TRACKER_{name.upper()}_CONFIG"):
        config = environ.get(variable)
        if config:
            return config
    return None


def is_strict(environ: Mapping[str, str] | None = None) -> bool:
    """Whether a failing tracker takes the job down."""
    env = os.environ if environ is None else environ
    return env.get(ENV_TORCHX_TRACKER_STRICT, "").strip().lower() in TRUE_VALUES


def resolve_configs(
    names: Mapping[str, str | None],
    sections: Mapping[str, Mapping[str, str | None]],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str | None]:
    """Returns the launcher's trackers with their configurations.

    ``TORCHX_TRACKERS`` of the launcher replaces the names in its files; a configuration in its
    environment wins over the file's.

    Args:
        names: section ``[torchx:tracker]``: the keys are names; a value ``module:attribute`` is the
            factory, and then what the job is told instead of the key
        sections: sections ``[tracker:NAME]`` by name: the key ``config`` is the configuration; if
            it is missing, the other keys are, for a tracker that can have one inlined
        environ: the launcher's environment, that of this process if None
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
    """The other keys of a section as a configuration, for a tracker that takes one inlined."""
    lines = [f"{key}={value}" for key, value in section.items() if key != "config" and value]
    try:
        if not lines or not callable(getattr(find_factory(name), "inline_config", None)):
            return None
    except TrackerError:
        return None
    from torchx_specs.trackers.inline import to_data_uri

    return to_data_uri("\n".join(lines))


def job_environment(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the variables by which a job finds the launcher's trackers, wherever it runs.

    Configurations that are files are inlined where the tracker knows how (:func:`inline_config`).
    A name that is not installed here is passed on: the job's image may have it. So is
    ``TORCHX_TRACKER_STRICT=1`` of the launcher.

    Args:
        configs: configurations by name, e.g. from :func:`resolve_configs`

    Raises:
        TrackerError: two names share a variable
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
    """Returns a configuration that holds without the launcher's files, if the tracker can make one.

    A tracker says how by an attribute ``inline_config`` of its factory: it takes the configuration
    and returns its replacement, e.g. a ``data:`` URI of the file's text. Anything else stays as it
    is.

    Args:
        name: the tracker
        config: its configuration
    """
    try:
        inline = getattr(find_factory(name), "inline_config", None)
    except TrackerError as e:
        _warn("%s; the job gets its name as it is", e)
        return config
    return str(inline(config)) if callable(inline) else config


def _registered() -> Mapping[str, Any]:
    from torchx_specs.plugins.manager import get_manager

    return get_manager().trackers()


def _warn(message: str, *args: object) -> None:
    import logging

    logging.getLogger("torchx_specs.trackers").warning(message, *args)
