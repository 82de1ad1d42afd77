"""The journal of an offline run: a file of records beside W&B's own files.

W&B's public API cannot read an offline run. The journal ``torchx-tracker.jsonl`` in the directory
``wandb/offline-run-<time>-<id>`` makes the records readable again. The first line of a journal is
the TorchX run id; each other line has the records of one call. Only one process writes to a
journal. ``wandb sync`` does not upload journals. It uploads the W&B run's config, which contains
the same records.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from glob import escape, iglob
from typing import Any

from torchx_specs.errors import one_line
from torchx_specs.trackers.api import TrackerBackendError
from torchx_tracker_wandb.encoding import Record, is_record

_NAME = "torchx-tracker.jsonl"


def append(folder: str, line: object) -> None:
    """Append a value as a line of JSON to the journal in an offline run's directory.

    If the disk is full, the journal keeps its previous content.

    Raises:
        TrackerBackendError: The journal cannot be written.
    """
    path = os.path.join(folder, _NAME)
    data = json.dumps(line).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if os.write(descriptor, data) != len(data):
                os.ftruncate(descriptor, size)
                raise OSError(f"the disk has no space for {len(data)} bytes")
        finally:
            os.close(descriptor)
    except OSError as e:
        raise TrackerBackendError(
            f"the wandb tracker cannot write '{path}': {one_line(e)}"
        ) from None


def read(folder: str, run_digest: str = "*") -> Iterator[tuple[str, list[Record]]]:
    """Yield the TorchX run id and the records of each journal, newest journal first.

    Several journals may have the same run id.

    Args:
        folder: W&B's directory.
        run_digest: Digest of a TorchX run id; only its journals are read (default: all journals).
    """
    pattern = os.path.join(escape(folder), f"offline-run-*-{run_digest}-*", _NAME)
    for path in sorted(iglob(pattern), reverse=True):
        run_id, *calls = list(_lines(path)) or [None]
        if isinstance(run_id, str):
            valid = (call for call in calls if isinstance(call, list))
            yield run_id, [record for call in valid for record in call if is_record(record)]


def _lines(path: str) -> Iterator[Any]:
    """Yield the value of each line; skip incomplete lines, which killed processes may leave."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except ValueError:
                    continue
    except FileNotFoundError:  # `wandb sync --clean` deleted the run
        return
    except OSError as e:
        raise TrackerBackendError(
            f"the wandb tracker cannot read '{path}': {one_line(e)}"
        ) from None
