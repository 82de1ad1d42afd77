"""Finds the launcher's tracker configurations, and passes them to jobs in variables."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from torchx_kit.trackers.inline import to_data_uri
from torchx_kit.trackers.lookup import (
    ENV_TORCHX_TRACKER_STRICT,
    config_from_environ,
    find_factory,
    is_strict,
    tracker_config_env_var_name,
    tracker_names,
)
from torchx_specs.errors import ConfigError, TrackerError
from torchx_specs.settings import ENV_TORCHX_TRACKERS

log = logging.getLogger(__name__)


def resolve_configs(
    sections: Mapping[str, Mapping[str, str | None]],
    environ: Mapping[str, str] | None = None,
) -> dict[str, str | None]:
    """Return the configuration of each of the launcher's trackers, or None without one, by name.

    The launcher is the process that submits the job. If ``TORCHX_TRACKERS`` is set in its
    environment, only the trackers in this variable are used. A configuration in the environment
    wins over a configuration in a file.

    Args:
        sections: Sections ``[tracker:NAME]`` by name. The key ``type`` makes it a tracker of every
            job: the value is the name of a plugin, or a factory (``module:attribute``), and the job
            uses it as the tracker's name. The key ``config`` is the configuration. Without this
            key, the other keys are the configuration of a tracker that accepts inlined
            configurations.
        environ: The launcher's environment (default: the environment of this process).

    Raises:
        ConfigError: Two sections configure the same tracker differently.
    """
    env = os.environ if environ is None else environ
    if env.get(ENV_TORCHX_TRACKERS, "").strip():
        chosen = tracker_names(env[ENV_TORCHX_TRACKERS])
    else:
        chosen = [name for name, section in sections.items() if section.get("type")]
    resolved: dict[str, str | None] = {}
    for name in chosen:
        section = sections.get(name, {})
        factory = section.get("type") or name
        config = (
            config_from_environ(name, env)
            or section.get("config")
            or _config_from_keys(factory, section)
        )
        if resolved.setdefault(factory, config) != config:
            raise ConfigError(
                f"[tracker:{name}]: another section configures the tracker '{factory}' differently,"
                f" and a job has one of each type; choose one with {ENV_TORCHX_TRACKERS}=NAME"
            )
    return resolved


def _config_from_keys(name: str, section: Mapping[str, str | None]) -> str | None:
    """Return a section's keys except ``config`` and ``type`` as an inlined configuration, or None.

    None means that there are no such keys, or that the tracker accepts no inlined configuration.
    """
    lines = [
        f"{key}={value}"
        for key, value in section.items()
        if key not in ("config", "type") and value
    ]
    try:
        if not lines or not callable(getattr(find_factory(name), "inline_config", None)):
            return None
    except TrackerError:
        return None
    return to_data_uri("\n".join(lines))


def job_environment(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment variables that configure the launcher's trackers in a job.

    Configurations in files are inlined if the tracker supports it (:func:`inline_config`). A
    tracker that is not installed here is passed on, because the job's image may have it.
    ``TORCHX_TRACKER_STRICT=1`` is passed on, too.

    Args:
        configs: Configurations by name, from :func:`resolve_configs`.

    Raises:
        TrackerError: The configurations of two trackers would be in the same variable.
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
    """Return a configuration that does not need the launcher's files, else ``config`` unchanged.

    If the tracker's factory has an attribute ``inline_config``, that function converts ``config``,
    for example a file name to a ``data:`` URI with the file's text.

    Args:
        name: Name of the tracker.
        config: Configuration of the tracker in the launcher.
    """
    try:
        inline = getattr(find_factory(name), "inline_config", None)
    except TrackerError as e:
        log.warning("%s; the job gets the configuration unchanged", e)
        return config
    return str(inline(config)) if callable(inline) else config
