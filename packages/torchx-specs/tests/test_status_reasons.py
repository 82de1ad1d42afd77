"""Tests of the reason of a replica's state in the text of a status."""

from __future__ import annotations

import pytest

from torchx_specs import AppState, AppStatus, ReplicaStatus, RoleStatus


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("exit code 3", "FAILED (exitcode: 3)\n"),
        ("OOMKilled", "FAILED (exitcode: 3, reason: OOMKilled)\n"),
        ("", "FAILED (exitcode: 3)\n"),
    ],
)
def test_a_reason_that_only_repeats_the_code_is_left_out(reason: str, shown: str) -> None:
    replica = ReplicaStatus(0, AppState.FAILED, "r", "host", reason=reason, exit_code=3)
    status = AppStatus(AppState.FAILED, roles=[RoleStatus("r", [replica])])
    assert shown in status.format()
