"""Encoding of runs as MLflow runs: names and values of tags.

MLflow restricts the names of tags and of artifact directories. If MLflow would reject a name, the
tag's name is a digest, and its value is JSON that contains the original name.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

from torchx_kit.trackers.checks import json_text
from torchx_specs.trackers.api import TrackerValueError

#: Tags of a run whose id cannot be used in a filter: the id, and a digest of the id.
RUN_ID = "torchx.run_id"
RUN_DIGEST = "torchx.run_sha256"
#: Prefix of the tags that record artifacts.
ARTIFACT = "torchx.artifact."
#: Prefix of the tags in which older releases keep an artifact's metadata: ``<prefix><name>.<key>``.
ARTIFACT_METADATA = "torchx.artifact.metadata."
#: Prefixes of the tags that record sources, parent runs, and metadata whose keys MLflow rejects.
SOURCE = "torchx.source."
PARENT = "torchx.parent."
METADATA = "torchx.metadata."
_RESERVED = (RUN_ID, RUN_DIGEST, ARTIFACT, SOURCE, PARENT, METADATA, "mlflow.")

_TAG_NAME = re.compile(r"[/\w.\- :]{1,250}")
_PLAIN_RUN_NAME = re.compile(r"[\w./:@+= -]{1,250}")
# Matches text that a quoted string in a filter can contain.
_QUOTABLE = re.compile(r"[^\"\\`;]{1,250}")


def digest(*parts: str | None) -> str:
    """Return a digest of one or more texts, short enough for the name of a tag."""
    data = "\0".join("" if part is None else f"={part}" for part in parts)
    return sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_plain_run_name(run_id: str) -> bool:
    """Return whether the run id can be used as an MLflow run name in a filter."""
    return _PLAIN_RUN_NAME.fullmatch(run_id) is not None


def run_name(run_id: str) -> str:
    """Return the name of the MLflow run: the run id, printable and at most 250 characters long."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in run_id)
    return shown[:250]


def run_filters(run_id: str) -> list[str]:
    """Return MLflow filters for a run, to be tried in order until one matches."""
    if is_plain_run_name(run_id):
        return [f"tags.mlflow.runName = '{run_id}'"]
    found = [f"tags.`{RUN_DIGEST}` = '{digest(run_id)}'"]
    if _QUOTABLE.fullmatch(run_id) and run_id.isprintable():  # runs created by older releases
        found.append(f'tags.mlflow.runName = "{run_id}"')
    return found


def is_tag_name(key: str) -> bool:
    """Return whether a metadata key can name a tag: MLflow allows it, and it is not reserved."""
    return is_name(key) and not key.startswith(_RESERVED)


def is_artifact_directory(name: str) -> bool:
    """Return whether a directory can have this name: MLflow allows it, and it is not reserved."""
    return is_name(name) and not name.startswith("torchx-")


def is_name(text: str) -> bool:
    """Return whether MLflow allows this name for a tag or an artifact."""
    normal = posixpath.normpath(text)
    unique = normal == text and normal != "." and not normal.startswith(("..", "/"))
    return unique and _TAG_NAME.fullmatch(text) is not None


def to_text(key: str, run_id: str, value: object) -> str:
    """Return a value as text for MLflow's pages; lists and dictionaries as JSON."""
    encoded = json_text(key, run_id, value)
    return encoded if isinstance(value, (list, tuple, dict)) else str(value)


def from_json(text: str) -> dict[str, Any] | None:
    """Return the object in the value of a tag, or None if the value is not a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def metadata_tag(key: str, run_id: str, value: object) -> tuple[str, str]:
    """Return the name and value of the tag that records a metadata entry."""
    if is_tag_name(key):
        return key, to_text(key, run_id, value)
    pair = {"key": key, "value": to_text(key, run_id, value)}
    return METADATA + digest(key), json_text(key, run_id, pair)


def read_metadata(tags: dict[str, str]) -> dict[str, object]:
    """Return the metadata in the tags of a run."""
    found: dict[str, object] = {}
    for name, value in tags.items():
        if name.startswith(METADATA):
            pair = from_json(value) or {}
            if isinstance(pair.get("key"), str):
                found[pair["key"]] = pair.get("value")
        elif not name.startswith(_RESERVED):
            found[name] = value
    return found


def flatten(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each parameter in a nested configuration.

    The parameter of a dataclass's or dictionary's field is named ``a.b``. The parameter of an item
    in a list of dataclasses is named ``a._0``. Any other list is one parameter.

    Raises:
        TrackerValueError: ``key`` is empty, and ``value`` is a single value, which has no name.
    """
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from flatten(getattr(value, field.name), _join_keys(key, field.name))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from flatten(inner, _join_keys(key, str(name)))
    elif isinstance(value, (list, tuple)) and any(map(is_dataclass, value)):
        for number, inner in enumerate(value):
            yield from flatten(inner, _join_keys(key, f"_{number}"))
    elif key:
        yield key, str(value)
    else:
        raise TrackerValueError(f"a value of type {type(value).__qualname__} needs a key")


def _join_keys(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
