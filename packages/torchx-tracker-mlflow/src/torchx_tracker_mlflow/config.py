"""The tracker's configuration: the tracking server and the experiment.

::

    # .torchxconfig
    [tracker:mlflow]
    type=mlflow
    tracking_uri=http://mlflow.example.com:5000
    experiment_name=my-experiment
"""

from __future__ import annotations

import os

from torchx_kit.trackers.inline import from_data_uri, to_data_uri
from torchx_specs.errors import nearest, one_line
from torchx_specs.trackers.api import TrackerValueError

KEYS = ("experiment_name", "tracking_uri", "artifact_location")
_SECTION = "tracker:mlflow"
_FILE = ".torchxconfig"


def read_config(config: str | None) -> dict[str, str]:
    """Return the settings: any of ``experiment_name``, ``tracking_uri``, ``artifact_location``.

    Args:
        config: None or an empty string uses MLflow's environment variables. Otherwise one of: the
            URI of a tracking server; the path of a ``.torchxconfig`` with a section
            ``[tracker:mlflow]``, or of its directory; a ``data:`` URI of ``key=value`` lines; such
            lines, separated by ``;``.

    Raises:
        TrackerValueError: The file is missing, malformed or has no such section, or a setting is
            unknown.
    """
    if not config or not config.strip():
        return {}
    text = from_data_uri(config)
    if text is not None:
        return _check_keys(_parse_lines(text), "tracker configuration in a data: URI")
    if _is_lines(config):
        return _check_keys(_parse_lines(config.replace(";", "\n")), "inline tracker configuration")
    if _is_uri(config):
        return {"tracking_uri": config}
    return _read_file(config)


def inline_config(config: str) -> str:
    """Return a configuration that a job can read without the launcher's files.

    The path of a file becomes a ``data:`` URI of the file's settings. The path of an unreadable
    file is returned unchanged, because the job's image may contain the file. Any other
    configuration is returned unchanged as well.

    Args:
        config: See :func:`read_config`.
    """
    if config.startswith("data:") or _is_lines(config) or _is_uri(config):
        return config
    try:
        settings = _read_file(config)
    except TrackerValueError as e:
        import logging

        logging.getLogger("torchx_tracker_mlflow").warning("%s; passing its path to the job", e)
        return config
    return to_data_uri("\n".join(f"{key}={value}" for key, value in settings.items()))


def _is_lines(config: str) -> bool:
    return config.partition("=")[0].strip() in KEYS


def _is_uri(config: str) -> bool:
    return "://" in config or config == "databricks"


def _parse_lines(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs if not key.startswith("#")}


def _read_file(path: str) -> dict[str, str]:
    import configparser

    path = os.path.expanduser(path)
    file = os.path.join(path, _FILE) if os.path.isdir(path) else path
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[method-assign,assignment] # keep the case of keys
    try:
        with open(file, encoding="utf-8") as opened:
            parser.read_file(opened)
    except FileNotFoundError:
        raise TrackerValueError(
            f"tracker configuration '{file}' does not exist; set config in [tracker:mlflow] to a"
            f" directory with a {_FILE}, to such a file, or to the URI of a tracking server"
        ) from None
    except (OSError, UnicodeDecodeError, configparser.Error) as e:
        reason = one_line(e)
        raise TrackerValueError(
            f"tracker configuration '{file}' cannot be read: {reason}"
        ) from None
    if not parser.has_section(_SECTION):
        raise TrackerValueError(f"tracker configuration '{file}' has no section [{_SECTION}]")
    settings = dict(parser.items(_SECTION))
    for key in ("config", "type"):
        settings.pop(key, None)
    return _check_keys(settings, f"'{file}', section [{_SECTION}]")


def _check_keys(settings: dict[str, str], where: str) -> dict[str, str]:
    for key in settings:
        if key not in KEYS:
            raise TrackerValueError(
                f"{where}: unknown setting '{key}';{nearest(key, KEYS)}"
                f" valid settings: {', '.join(KEYS)}"
            )
    return {key: value for key, value in settings.items() if value}
