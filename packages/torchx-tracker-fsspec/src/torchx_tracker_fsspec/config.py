"""The tracker's configuration: ``key=value`` lines, in a file, at a URL or inline.

::

    # tracker.conf
    protocol=s3
    root_path=bucket/experiments
    client_kwargs.endpoint_url=http://127.0.0.1:9000
"""

from __future__ import annotations

import os

from torchx_kit.trackers.inline import from_data_uri, to_data_uri
from torchx_specs.trackers.api import TrackerValueError

_REQUIRED = ("protocol", "root_path")
_EXAMPLE = "for example a file with the lines protocol=file and root_path=/shared/experiments"


def read_config(config: str | None) -> dict[str, object]:
    """Return the settings of a tracker, with at least ``protocol`` and ``root_path``.

    Args:
        config: Path or URL of a file, a ``data:`` URI, or the settings themselves, separated by
            ``;``: ``protocol=file;root_path=/tmp/experiments``.

    Raises:
        TrackerValueError: There is no configuration, it cannot be read, a key is not valid, or a
            required setting is missing or not a text.
    """
    if not config or not config.strip():
        raise TrackerValueError(
            f"the fsspec tracker has no configuration; set config in [tracker:fsspec], {_EXAMPLE}"
        )
    text, where = _read_text(config)
    settings = parse(text, where)
    missing = [key for key in _REQUIRED if not settings.get(key)]
    if missing:
        raise TrackerValueError(f"{where}: {' and '.join(missing)} must be set, {_EXAMPLE}")
    for key in _REQUIRED:
        if not isinstance(settings[key], str):
            raise TrackerValueError(f"{where}: {key} must be a text, it has keys of its own")
    return settings


def inline_config(config: str) -> str:
    """Return a configuration that a job can read without the launcher's files.

    The path of a local file becomes a ``data:`` URI of the file's text, which jobs with older
    TorchX releases can read as well. URLs and inline settings are returned unchanged. The path of
    an unreadable file is also returned unchanged, because the job's image may contain the file.

    Args:
        config: See :func:`read_config`.
    """
    if _is_inline(config) or _is_url(config):
        return config
    try:
        return to_data_uri(_read_local(local_path(config)))
    except TrackerValueError as e:
        import logging

        logging.getLogger("torchx_tracker_fsspec").warning("%s; passing its path to the job", e)
        return config


def parse(text: str, where: str) -> dict[str, object]:
    """Return the settings in ``key=value`` lines; ``a.b=1`` sets ``b`` in a dictionary ``a``.

    Values are text, except for ``true`` and ``false``. Lines that begin with ``#`` or have no ``=``
    are ignored.

    Args:
        text: The lines.
        where: Description of the source, for error messages.

    Raises:
        TrackerValueError: A part of a key is empty, or a key has both a value and keys of its own.
    """
    settings: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = line.partition("=")
        if line.startswith("#") or not equals:
            continue
        *parents, last = [part.strip() for part in key.split(".")]
        if not last or not all(parents):
            raise TrackerValueError(
                f"{where}, line {number}: '{key.strip()}' is not a valid key, a part of it is empty"
            )
        inner = settings
        for part in parents:
            nested = inner.setdefault(part, {})
            if not isinstance(nested, dict):
                raise _value_and_keys_error(where, number, part)
            inner = nested
        if isinstance(inner.get(last), dict):
            raise _value_and_keys_error(where, number, last)
        inner[last] = _value(value.strip())
    return settings


def _value_and_keys_error(where: str, number: int, key: str) -> TrackerValueError:
    return TrackerValueError(
        f"{where}, line {number}: '{key}' has both a value and keys of its own"
    )


def _value(text: str) -> str | bool:
    return {"true": True, "false": False}.get(text.lower(), text)


def _read_text(config: str) -> tuple[str, str]:
    """Return the text of a configuration, and a description of its source for error messages."""
    inlined = from_data_uri(config)
    if inlined is not None:
        return inlined, "tracker configuration in a data: URI"
    if _is_inline(config):
        return config.replace(";", "\n"), "inline tracker configuration"
    where = f"tracker configuration '{config}'"
    return (_read_url(config) if _is_url(config) else _read_local(local_path(config))), where


def _is_inline(config: str) -> bool:
    return config.partition("=")[0].strip() in _REQUIRED


def _is_url(config: str) -> bool:
    if config.startswith("data:"):
        return True
    protocol, separator, _ = config.partition("://")
    return bool(separator) and protocol not in ("file", "local")


def local_path(config: str) -> str:
    """Return the path in a ``file:`` or ``local:`` URL, or the path itself."""
    for prefix in ("file://", "local://"):
        config = config.removeprefix(prefix)
    return os.path.expanduser(config)


def _read_local(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise TrackerValueError(
            f"tracker configuration '{path}' does not exist; create it where the job is launched or"
            " where it runs"
        ) from None
    except (OSError, UnicodeDecodeError) as e:
        raise TrackerValueError(f"tracker configuration '{path}' cannot be read: {e}") from None


def _read_url(url: str) -> str:
    import fsspec

    try:
        with fsspec.open(url, "r", encoding="utf-8") as file:
            return str(file.read())
    except Exception as e:  # each file system raises its own errors
        raise TrackerValueError(
            f"tracker configuration '{url}' cannot be read: {type(e).__name__}: {e}"
        ) from e
