"""What a run of MLflow holds of ours: names of tags, and text in their values.

MLflow restricts the names of tags and of artifacts' folders. Names that it would refuse are kept as
JSON in the value of a tag, whose own name is a digest.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from hashlib import sha256
from typing import Any

from torchx_specs.trackers.api import TrackerValueError
from torchx_specs.trackers.checks import json_text

#: The whole id of a run whose name MLflow cannot be asked for; and its digest, to ask for that.
RUN_ID = "torchx.run_id"
RUN_DIGEST = "torchx.run_sha256"
#: Prefixes of tags that are no metadata.
ARTIFACT = "torchx.artifact."
#: Where older versions keep what is known of an artifact: PREFIX NAME . KEY
ARTIFACT_METADATA = "torchx.artifact.metadata."
SOURCE = "torchx.source."
PARENT = "torchx.parent."
METADATA = "torchx.metadata."
_OURS = (RUN_ID, RUN_DIGEST, ARTIFACT, SOURCE, PARENT, METADATA, "mlflow.")

_TAG_NAME = re.compile(r"[/\w.\- :]{1,250}")
_PLAIN_RUN_NAME = re.compile(r"[\w./:@+= -]{1,250}")
#: What a quoted text in a filter may be made of.
_QUOTABLE = re.compile(r"[^\"\\`;]{1,250}")


def digest(*parts: str | None) -> str:
    """Returns a short name for any text."""
    data = "\0".join("" if part is None else f"={part}" for part in parts)
    return sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_plain_run_name(run_id: str) -> bool:
    """Whether a run of this id is known by its name alone."""
    return _PLAIN_RUN_NAME.fullmatch(run_id) is not None


def run_name(run_id: str) -> str:
    """Returns the name that MLflow's pages show for a run."""
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in run_id)
    return shown[:250]


def conditions(run_id: str) -> list[str]:
    """Returns MLflow's filters for a run, of which the first that finds something counts."""
    if is_plain_run_name(run_id):
        return [f"tags.mlflow.runName = '{run_id}'"]
    found = [f"tags.`{RUN_DIGEST}` = '{digest(run_id)}'"]
    if _QUOTABLE.fullmatch(run_id) and run_id.isprintable():  # a run that older tools made
        found.append(f'tags.mlflow.runName = "{run_id}"')
    return found


def is_tag_name(key: str) -> bool:
    """Whether MLflow takes this as the name of a tag, and it is none that has a meaning here."""
    return is_name(key) and not key.startswith(_OURS)


def is_folder(name: str) -> bool:
    """Whether MLflow takes this as the folder of an artifact."""
    return is_name(name) and not name.startswith("torchx-")


def is_name(text: str) -> bool:
    """Whether MLflow takes this as a name of anything."""
    normal = posixpath.normpath(text)
    unique = normal == text and normal != "." and not normal.startswith(("..", "/"))
    return unique and _TAG_NAME.fullmatch(text) is not None


def to_text(key: str, run_id: str, value: object) -> str:
    """Returns a value as MLflow shows it: scalars as text, lists and dicts as JSON."""
    encoded = json_text(key, run_id, value)
    return encoded if isinstance(value, (list, tuple, dict)) else str(value)


def from_json(text: str) -> dict[str, Any] | None:
    """Returns the object in a tag's value, None if there is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def metadata_tag(key: str, run_id: str, value: object) -> tuple[str, str]:
    """Returns the tag that records a pair of metadata."""
    if is_tag_name(key):
        return key, to_text(key, run_id, value)
    pair = {"key": key, "value": to_text(key, run_id, value)}
    return METADATA + digest(key), json_text(key, run_id, pair)


def metadata_of(tags: dict[str, str]) -> dict[str, object]:
    """Returns the metadata in a run's tags."""
    found: dict[str, object] = {}
    for name, value in tags.items():
        if name.startswith(METADATA):
            pair = from_json(value) or {}
            if isinstance(pair.get("key"), str):
                found[pair["key"]] = pair.get("value")
        elif not name.startswith(_OURS):
            found[name] = value
    return found


def flatten(value: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yields the parameters in a configuration: ``a.b`` of dataclasses and dicts, ``a._0`` of
    lists of dataclasses. Another list is one parameter.
    """
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from flatten(getattr(value, field.name), _below(key, field.name))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from flatten(inner, _below(key, str(name)))
    elif isinstance(value, (list, tuple)) and any(map(is_dataclass, value)):
        for number, inner in enumerate(value):
            yield from flatten(inner, _below(key, f"_{number}"))
    elif key:
        yield key, str(value)
    else:
        raise TrackerValueError(f"a {type(value).__qualname__} by itself needs a key")


def _below(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name
