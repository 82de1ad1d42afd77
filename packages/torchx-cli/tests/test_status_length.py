"""Test that ``torchx status`` shortens a long error, and says so."""

from __future__ import annotations

import json

from torchx_cli.output.status_text import _cause, _end_of
from torchx_specs.model.status import AppState, ReplicaStatus


def test_shortened_error_says_so() -> None:
    error = json.dumps({"message": {"message": "x" * 5000}})
    replica = ReplicaStatus(0, AppState.FAILED, "main", "host", structured_error_msg=error)
    cause = _cause(_end_of(replica))
    assert len(cause) < 400
    assert cause.endswith("xxx... (shortened; --replicas shows more)")
