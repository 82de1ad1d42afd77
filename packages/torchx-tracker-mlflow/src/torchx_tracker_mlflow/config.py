"""The tracker's configuration: where the server is, and which experiment.

::

    # .torchxconfig
    [torchx:tracker]
    mlflow=

    [tracker:mlflow]
    tracking_uri=http://mlflow.example.com:5000
    experiment_name=my-experiment
"""

from __future__ import annotations

import os

from torchx_specs.errors import nearest, one_line
from torchx_specs.trackers.api import TrackerValueError
from torchx_specs.trackers.inline import from_data_uri, to_data_uri

KEYS = ("experiment_name", "tracking_uri", "artifact_location")
_SECTION = "tracker:mlflow"
_FILE = ".torchxconfig"


def read_config(config: str | None) -> dict[str, str]:
    """Returns the settings: some of ``experiment_name``, ``tracking_uri``, ``artifact_location``.

    Args:
        config: nothing, for MLflow's own environment variables; the URI of a tracking server; a
            folder with a ``.torchxconfig``, or that file, of which the section ``[tracker:mlflow]``
            counts; a ``data:`` URI of ``key=value`` lines; or these lines with ``;`` between them

    Raises:
        TrackerValueError: the file is missing or malformed, or a key is unknown
    """
    if not config or not config.strip():
        return {}
    text = from_data_uri(config)
    if text is not None:
        return _known(_lines(text), "the inlined configuration")
    if _is_lines(config):
        return _known(_lines(config.replace(";", "\n")), "the inline configuration")
    if _is_uri(config):
        return {"tracking_uri": config}
    return _read_file(config)


def inline_config(config: str) -> str:
    """Returns a configuration that a job can read without the launcher's files.

    Args:
        config: see :func:`read_config`; a file that is not here stays as it is, as the job's image
            may have it
    """
    if config.startswith("data:") or _is_lines(config) or _is_uri(config):
        return config
    try:
        settings = _read_file(config)
    except TrackerValueError as e:
        import logging

        logging.getLogger("torchx_tracker_mlflow").warning("%s; the job gets its path", e)
        return config
    return to_data_uri("\n".join(f"{key}={value}" for key, value in settings.items()))


def _is_lines(config: str) -> bool:
    return config.partition("=")[0].strip() in KEYS


def _is_uri(config: str) -> bool:
    return "://" in config or config == "databricks"


def _lines(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs if not key.startswith("#")}


def _read_file(path: str) -> dict[str, str]:
    import configparser

    path = os.path.expanduser(path)
    file = os.path.join(path, _FILE) if os.path.isdir(path) else path
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[method-assign,assignment] # keys keep their case
    try:
        with open(file, encoding="utf-8") as opened:
            parser.read_file(opened)
    except FileNotFoundError:
        raise TrackerValueError(
            f"tracker configuration '{file}' does not exist; [tracker:mlflow] config names a"
            f" folder with a {_FILE}, a file like it, or the URI of a tracking server"
        ) from None
    except (OSError, UnicodeDecodeError, configparser.Error) as e:
        reason = one_line(e)
        raise TrackerValueError(
            f"tracker configuration '{file}' cannot be read: {reason}"
        ) from None
    if not parser.has_section(_SECTION):
        raise TrackerValueError(f"tracker configuration '{file}' has no section [{_SECTION}]")
    settings = {key: value for key, value in parser.items(_SECTION) if key != "config"}
    return _known(settings, f"'{file}', section [{_SECTION}]")


def _known(settings: dict[str, str], where: str) -> dict[str, str]:
    for key in settings:
        if key not in KEYS:
            raise TrackerValueError(
                f"{where}: the mlflow tracker has no setting '{key}';{nearest(key, KEYS)}"
                f" settings: {', '.join(KEYS)}"
            )
    return {key: value for key, value in settings.items() if value}
