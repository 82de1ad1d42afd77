"""Encoding of records for W&B, which restricts run ids, the names of artifacts and config keys.

Every record is a dictionary with the keys ``kind`` and ``time``. A later record replaces an earlier
record of the same identity, such as the same metadata key. W&B's config contains each record as
JSON text, because W&B would change some values, such as lone surrogates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from torchx_specs.trackers.api import TrackerArtifact, TrackerSource

#: Config keys of a W&B run: the TorchX run id as JSON text, and the run id's digest.
RUN_ID = "torchx_run_id"
RUN_DIGEST = "torchx_run_digest"
#: Prefix of the config keys whose values are records.
RECORD = "torchx_record_"
#: Kinds of records.
METADATA = "metadata"
ARTIFACT = "artifact"
SOURCE = "source"

# A record's identity is its kind and the values of these keys.
_IDENTITY = {METADATA: ("key",), ARTIFACT: ("name",), SOURCE: ("source_id", "artifact_name")}
_PLAIN_KEY = re.compile(r"[A-Za-z][\w.-]{0,99}", re.ASCII)
_MAX_NAME = 128

Record = dict[str, Any]


def digest(*parts: str | None) -> str:
    """Return a digest of one or more texts that W&B allows in ids and names."""
    data = "\0".join("" if part is None else f"={part}" for part in parts)
    return sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def display_name(run_id: str) -> str:
    """Return the text that is both name and group of a TorchX run's W&B runs.

    It contains no control characters.
    """
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in run_id)
    return shown[:_MAX_NAME]


def artifact_name(run_id: str, name: str) -> str:
    """Return the name of a W&B artifact: a readable part, and a digest of the run and the name."""
    readable = re.sub(r"[^A-Za-z0-9_.-]", "-", name)[:80]
    return f"{readable}-{digest(run_id, name)}"


def config_values(run_id: str) -> dict[str, object]:
    """Return the config values that identify a TorchX run in W&B."""
    return {RUN_ID: json.dumps(run_id), RUN_DIGEST: digest(run_id)}


def config_of_records(records: Iterable[Record]) -> dict[str, object]:
    """Return config values for records: JSON text, and plain values of metadata for W&B's pages.

    A metadata entry has no plain value if W&B could change it, or if its key is reserved.
    """
    values: dict[str, object] = {}
    for record in records:
        values[RECORD + digest(*_identity(record))] = json.dumps(record)
        if record["kind"] == METADATA and _is_plain(record["key"], record["value"]):
            values[record["key"]] = record["value"]
    return values


def records_in_config(config: Mapping[str, object]) -> list[Record]:
    """Return the records in a W&B run's config; a value that is not a record is skipped."""
    texts = [value for key, value in config.items() if key.startswith(RECORD)]
    return [record for text in texts if (record := from_json(text)) is not None]


def run_id_in_config(config: Mapping[str, object]) -> str | None:
    """Return the TorchX run id in a W&B run's config, or None if another program made the run."""
    try:
        found = json.loads(str(config.get(RUN_ID)))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, str) else None


def from_json(text: object) -> Record | None:
    """Return the record in a JSON text, or None if the text is not a complete record."""
    try:
        record = json.loads(str(text))
    except (ValueError, RecursionError):
        return None
    return record if is_record(record) else None


def is_record(value: object) -> bool:
    """Return whether a value has all keys of a record."""
    if not isinstance(value, dict) or not isinstance(value.get("time"), int):
        return False
    names = _IDENTITY.get(str(value.get("kind")))
    return names is not None and isinstance(value.get(names[0]), str)


def latest(records: Iterable[Record]) -> list[Record]:
    """Return the latest record of each identity, oldest first."""
    found: dict[tuple[str | None, ...], Record] = {}
    for record in sorted(records, key=lambda record: int(record["time"])):
        found[_identity(record)] = record
    return list(found.values())


def metadata(records: Iterable[Record]) -> dict[str, object]:
    """Return the metadata in the records of a run."""
    return {r["key"]: r.get("value") for r in latest(records) if r["kind"] == METADATA}


def artifacts(records: Iterable[Record]) -> dict[str, TrackerArtifact]:
    """Return the artifacts in the records of a run, by name."""
    return {
        r["name"]: TrackerArtifact(r["name"], str(r.get("path")), r.get("metadata"))
        for r in latest(records)
        if r["kind"] == ARTIFACT
    }


def sources(records: Iterable[Record]) -> list[TrackerSource]:
    """Return the sources in the records of a run."""
    return [
        TrackerSource(r["source_id"], r.get("artifact_name"))
        for r in latest(records)
        if r["kind"] == SOURCE
    ]


def _identity(record: Record) -> tuple[str | None, ...]:
    return (record["kind"], *(record.get(name) for name in _IDENTITY[record["kind"]]))


def _is_plain(key: str, value: object) -> bool:
    if _PLAIN_KEY.fullmatch(key) is None or key.startswith("torchx_"):
        return False
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:  # includes UnicodeEncodeError
        return False
    return True
