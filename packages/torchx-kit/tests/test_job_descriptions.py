"""Tests of descriptions of apps: states, times, exit codes, and the form for the index."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

from torchx_kit.jobs.descriptions import (
    app_exit_code,
    combined_state,
    description,
    from_dict,
    listed,
    set_times,
    to_dict,
)
from torchx_specs import AppState, ReplicaStatus, RoleStatus
from torchx_specs.model.constants import NONE
from torchx_specs.model.status import AttemptStatus

DONE, RUNNING, PENDING = AppState.SUCCEEDED, AppState.RUNNING, AppState.PENDING
FAILED, CANCELLED = AppState.FAILED, AppState.CANCELLED


@pytest.mark.parametrize(
    ("states", "combined"),
    [
        ([], DONE),
        ([DONE, DONE], DONE),
        ([DONE, RUNNING], RUNNING),
        ([FAILED, RUNNING], RUNNING),
        ([FAILED, PENDING], PENDING),
        ([CANCELLED, FAILED], FAILED),
        ([DONE, CANCELLED], CANCELLED),
        ([DONE, AppState.UNKNOWN], AppState.UNKNOWN),
    ],
)
def test_state_of_an_app_combines_the_states_of_its_replicas(
    states: list[AppState], combined: AppState
) -> None:
    assert combined_state(states) is combined


def test_description_survives_json() -> None:
    replicas = [
        ReplicaStatus(0, DONE, "main", ""),
        ReplicaStatus(1, FAILED, "main", "n2", structured_error_msg='{"a": 1}', exit_code=3),
    ]
    described = description("app-1", FAILED, "main/1: exit code 3", [RoleStatus("main", replicas)])
    assert described.structured_error_msg == '{"a": 1}'
    assert [(role.name, role.num_replicas) for role in described.roles] == [("main", 2)]
    described.num_restarts = 2
    when = datetime(2026, 11, 29, tzinfo=timezone.utc)
    first = AttemptStatus(0, when, when, "requested", None, 4, ("n1", "n2"))
    described.attempts = [first, AttemptStatus(1)]
    assert from_dict(json.loads(json.dumps(to_dict(described)))) == described


def test_description_without_errors_has_none() -> None:
    described = description("app-1", DONE, NONE, [RoleStatus("main", [])])
    assert described.structured_error_msg == NONE


NOON = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def timed(k: int, started: float | None, ended: float | None, **more: int) -> ReplicaStatus:
    times = [None if seconds is None else at(seconds) for seconds in (started, ended)]
    state = DONE if not more.get("exit_code") else FAILED
    return ReplicaStatus(
        k, state, "main", "", started=times[0], ended=times[1], exit_code=more.get("exit_code")
    )


def test_an_app_starts_with_its_first_replica_and_ends_with_its_last() -> None:
    replicas = [timed(0, 3, 9), timed(1, 2, 8), timed(2, None, None)]
    described = description("app-1", DONE, NONE, [RoleStatus("main", replicas)])
    set_times(described, NOON, replicas, started=at(-5), ended=at(10))
    assert (described.submitted, described.started, described.ended) == (NOON, at(2), at(10))


def test_an_app_that_runs_has_not_ended() -> None:
    replicas = [timed(0, 1, 2), timed(1, 1, None)]
    described = description("app-1", RUNNING, NONE, [RoleStatus("main", replicas)])
    set_times(described, NOON, replicas)
    assert (described.started, described.ended) == (at(1), None)


def test_clocks_that_differ_do_not_turn_the_times_around() -> None:
    replicas = [timed(0, -2, -1)]
    described = description("app-1", DONE, NONE, [RoleStatus("main", replicas)])
    set_times(described, NOON, replicas)
    assert (described.submitted, described.started, described.ended) == (NOON, NOON, NOON)


def test_times_survive_json() -> None:
    replicas = [timed(0, 1, 2), timed(1, 3, None)]
    described = description("app-1", DONE, NONE, [RoleStatus("main", replicas)])
    set_times(described, NOON, replicas)
    assert from_dict(json.loads(json.dumps(to_dict(described)))) == described


@pytest.mark.parametrize(
    ("state", "codes", "expected"),
    [
        (DONE, [0, 0], 0),
        (FAILED, [-15, 3], 3),
        (FAILED, [-9, 0], -9),
        (FAILED, [], None),
        (CANCELLED, [3], None),
        (RUNNING, [3], None),
    ],
)
def test_exit_code_of_an_app(state: AppState, codes: list[int], expected: int | None) -> None:
    replicas = [timed(k, 1, 2, exit_code=code) for k, code in enumerate(codes)]
    assert app_exit_code(state, replicas) == expected


def test_entry_of_a_list_has_the_times_and_the_exit_code() -> None:
    replicas = [timed(0, 1, 2, exit_code=3)]
    described = description("app-1", FAILED, NONE, [RoleStatus("main", replicas)])
    set_times(described, NOON, replicas)
    entry = listed(described, name="train")
    assert (entry.app_id, entry.state, entry.name, entry.exit_code) == ("app-1", FAILED, "train", 3)
    assert (entry.submitted, entry.started, entry.ended) == (NOON, at(1), at(2))
