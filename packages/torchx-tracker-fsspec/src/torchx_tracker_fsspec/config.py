"""The tracker's configuration: ``key=value`` lines, in a file, behind a URL, or in the text itself.

::

    # tracker.conf
    protocol=s3
    root_path=bucket/experiments
    client_kwargs.endpoint_url=http://127.0.0.1:9000
"""

from __future__ import annotations

import os

from torchx_specs.trackers.api import TrackerValueError
from torchx_specs.trackers.inline import from_data_uri, to_data_uri

_REQUIRED = ("protocol", "root_path")
_EXAMPLE = "e.g. a file with the lines protocol=file and root_path=/shared/experiments"


def read_config(config: str | None) -> dict[str, object]:
    """Returns the settings of a tracker; at least ``protocol`` and ``root_path`` are there.

    Args:
        config: the path or URL of a file, or a ``data:`` URI, or the text itself with ``;`` between
            the lines: ``protocol=file;root_path=/tmp/experiments``

    Raises:
        TrackerValueError: there is no configuration, or it lacks what is required
    """
    if not config or not config.strip():
        raise TrackerValueError(
            f"the fsspec tracker needs a configuration in [tracker:fsspec] config, {_EXAMPLE}"
        )
    text, where = _text_of(config)
    settings = parse(text, where)
    missing = [key for key in _REQUIRED if not settings.get(key)]
    if missing:
        raise TrackerValueError(
            f"{where}: the fsspec tracker needs {' and '.join(missing)}, {_EXAMPLE}"
        )
    for key in _REQUIRED:
        if not isinstance(settings[key], str):
            raise TrackerValueError(f"{where}: {key} takes a value, and no keys of its own")
    return settings


def inline_config(config: str) -> str:
    """Returns a configuration that a job can read without the launcher's files.

    A file here becomes a ``data:`` URI of its text, which older in-job trackers understand too.
    URLs and inline text stay as they are, and so does a file that is not here: it may be in the
    job's image.

    Args:
        config: see :func:`read_config`
    """
    if _is_inline(config) or _is_url(config):
        return config
    try:
        return to_data_uri(_read_local(_local_path(config)))
    except TrackerValueError as e:
        import logging

        logging.getLogger("torchx_tracker_fsspec").warning("%s; the job gets its path", e)
        return config


def parse(text: str, where: str) -> dict[str, object]:
    """Returns the settings in ``key=value`` lines; ``a.b=1`` is ``b`` in a dict named ``a``.

    Values are text, except ``true`` and ``false``. A line that begins with ``#``, or has no ``=``,
    does not count.

    Args:
        text: the lines
        where: what they are from, for errors

    Raises:
        TrackerValueError: a key is empty, ends in a dot, or has both a value and keys of its own
    """
    settings: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, value = line.partition("=")
        if line.startswith("#") or not equals:
            continue
        *parents, last = [part.strip() for part in key.split(".")]
        if not last or not all(parents):
            raise TrackerValueError(f"{where}, line {number}: '{key.strip()}' is no key")
        inner = settings
        for part in parents:
            below = inner.setdefault(part, {})
            if not isinstance(below, dict):
                raise _both(where, number, part)
            inner = below
        if isinstance(inner.get(last), dict):
            raise _both(where, number, last)
        inner[last] = _value(value.strip())
    return settings


def _both(where: str, number: int, key: str) -> TrackerValueError:
    return TrackerValueError(f"{where}, line {number}: '{key}' has a value and keys of its own")


def _value(text: str) -> str | bool:
    return {"true": True, "false": False}.get(text.lower(), text)


def _text_of(config: str) -> tuple[str, str]:
    """The text of a configuration, and how to call it in errors."""
    inlined = from_data_uri(config)
    if inlined is not None:
        return inlined, "the inlined tracker configuration"
    if _is_inline(config):
        return config.replace(";", "\n"), "the inline tracker configuration"
    where = f"tracker configuration '{config}'"
    return (_read_url(config) if _is_url(config) else _read_local(_local_path(config))), where


def _is_inline(config: str) -> bool:
    return config.partition("=")[0].strip() in _REQUIRED


def _is_url(config: str) -> bool:
    if config.startswith("data:"):
        return True
    protocol, separator, _ = config.partition("://")
    return bool(separator) and protocol not in ("file", "local")


def _local_path(config: str) -> str:
    for prefix in ("file://", "local://"):
        config = config.removeprefix(prefix)
    return os.path.expanduser(config)


def _read_local(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        raise TrackerValueError(
            f"tracker configuration '{path}' does not exist; it is needed where the job runs,"
            " or where it is launched from"
        ) from None
    except (OSError, UnicodeDecodeError) as e:
        raise TrackerValueError(f"tracker configuration '{path}' cannot be read: {e}") from None


def _read_url(url: str) -> str:
    import fsspec

    try:
        with fsspec.open(url, "r", encoding="utf-8") as file:
            return str(file.read())
    except Exception as e:  # each file system has errors of its own
        raise TrackerValueError(
            f"tracker configuration '{url}' cannot be read: {type(e).__name__}: {e}"
        ) from e
