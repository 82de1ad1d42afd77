"""Tests of errors of trackers."""

from __future__ import annotations

from torchx_specs.trackers.api import TrackerBackendError, TrackerValueError


def test_exit_codes_and_builtin_bases() -> None:
    assert TrackerValueError("x").exit_code == 2
    assert TrackerBackendError("x").exit_code == 3
    assert isinstance(TrackerValueError("x"), ValueError)
