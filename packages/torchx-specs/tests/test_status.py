"""Tests of states of apps, and the text of a status."""

from __future__ import annotations

import json
import pickle
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_specs import (
    NONE,
    AppState,
    AppStatus,
    AppStatusError,
    ReplicaState,
    ReplicaStatus,
    RoleStatus,
    is_started,
    is_terminal,
)

STATES = [
    "UNSUBMITTED",
    "SUBMITTED",
    "PENDING",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "UNKNOWN",
]


class TestStates:
    def test_they_are_numbered_in_order(self) -> None:
        assert [(s.name, int(s)) for s in AppState] == list(zip(STATES, range(8), strict=True))
        assert sorted({*AppState}) == list(AppState)
        assert AppState.RUNNING <= AppState.PENDING + 1
        assert min(AppState.FAILED, AppState.PENDING) is AppState.PENDING
        assert AppState.FAILED == 5

    def test_text(self) -> None:
        assert str(AppState.FAILED) == "FAILED"
        assert repr(AppState.FAILED) == "FAILED (5)"
        assert f"{AppState.FAILED} {AppState.FAILED:>8}" == "FAILED   FAILED"

    def test_one_name_for_apps_and_replicas(self) -> None:
        assert ReplicaState is AppState

    @pytest.mark.parametrize("state", list(AppState))
    def test_terminal_and_started(self, state: AppState) -> None:
        assert is_terminal(state) == (state.name in ("SUCCEEDED", "FAILED", "CANCELLED"))
        assert is_started(state) == (is_terminal(state) or state is AppState.RUNNING)
        assert AppStatus(state).is_terminal() == is_terminal(state)

    @pytest.mark.parametrize("state", list(AppState))
    def test_raise_for_status(self, state: AppState) -> None:
        status = AppStatus(state, msg="why")
        if state is AppState.SUCCEEDED:
            status.raise_for_status()
            return
        with pytest.raises(AppStatusError, match="job did not succeed") as raised:
            status.raise_for_status()
        assert raised.value.status is status
        assert raised.value.exit_code == 1
        assert pickle.loads(pickle.dumps(raised.value)).status == status  # noqa: S301


def replica(id: int, state: AppState, payload: Any = None, **more: Any) -> ReplicaStatus:
    error = (
        NONE if payload is None else payload if isinstance(payload, str) else json.dumps(payload)
    )
    return ReplicaStatus(id, state, "trainer", f"h{id}", structured_error_msg=error, **more)


@pytest.mark.parametrize("text", ["", NONE, "why"])
def test_missing_values_are_none(text: str) -> None:
    status = AppStatus(AppState.FAILED, msg=text)
    replica = ReplicaStatus(0, AppState.FAILED, "main", "h", structured_error_msg=text)
    is_given = text == "why"
    assert (status.message, replica.error) == (("why", "why") if is_given else (None, None))
    assert AppStatus(AppState.FAILED, num_restarts=-1).restarts is None
    assert AppStatus(AppState.FAILED, num_restarts=2).restarts == 2


def failed(*replicas: ReplicaStatus) -> AppStatus:
    return AppStatus(AppState.FAILED, roles=[RoleStatus("trainer", list(replicas))])


def shown(
    roles: str, msg: str = "", error: str = NONE, restarts: int = 0, url: object = None
) -> str:
    return (
        f"AppStatus:\n    State: FAILED\n    Num Restarts: {restarts}\n    Roles: {roles}\n"
        f"    Msg: {msg}\n    Structured Error Msg: {error}\n    UI URL: {url}\n    "
    )


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("utc")
class TestFormat:
    """Tests of the text that upstream prints, too, and that scripts parse."""

    def test_a_running_app(self) -> None:
        assert AppStatus(AppState.RUNNING).format() == shown("").replace("FAILED", "RUNNING")

    def test_replicas_in_order(self) -> None:
        status = failed(
            replica(1, AppState.FAILED),
            replica(0, AppState.SUCCEEDED),
            replica(2, AppState.CANCELLED),
        )
        status.num_restarts, status.msg, status.ui_url = 2, "m", "http://u"
        status.structured_error_msg = "s"
        roles = (
            "\n *trainer[0]:SUCCEEDED\n  trainer[1]:FAILED (no reply file)"
            "\n  trainer[2]:CANCELLED (no reply file)"
        )
        assert status.format() == shown(roles, "m", "s", 2, "http://u")

    @pytest.mark.parametrize(
        ("id", "payload", "entry"),
        [
            pytest.param(
                0,
                {
                    "message": {
                        "message": "Boom: something went wrong while doing a rather long thing that"
                        " needs wrapping at eighty characters or so, and then once more because it"
                        " is so long",
                        "errorCode": 7,
                        "extraInfo": {"timestamp": 1700000000},
                    }
                },
                "\n *trainer[0]:FAILED (exitcode: 7)\n        timestamp: 2023-11-14 22:13:20"
                "\n        hostname: h0\n        error_msg: Boom: something went wrong while doing"
                " a rather long thing that needs wrapping at\n                eighty characters or"
                " so, and then once more because it is so long",
                id="torchelastic, wrapped",
            ),
            pytest.param(
                1,
                {"message": "flat", "errorCode": -9, "timestamp": "1700000001"},
                "\n  trainer[1]:FAILED (exitcode: -9)\n        timestamp: 2023-11-14 22:13:21"
                "\n        hostname: h1\n        error_msg: flat",
                id="flat",
            ),
            pytest.param(
                0,
                {
                    "message": "pre\nRuntimeError('On WorkerInfo(id=1, name=w):\nline1\n"
                    "ValueError: x\n')\npost",
                    "errorCode": 1,
                    "timestamp": 1,
                },
                "\n *trainer[0]:FAILED (exitcode: 1)\n        timestamp: 1970-01-01 00:00:01"
                "\n        hostname: h0\n        error_msg: RuntimeError('On WorkerInfo(id=1,"
                " name=w):\nline1\nValueError: x\n')",
                id="what an RPC wraps",
            ),
            pytest.param(
                0,
                {
                    "message": "Traceback\n  File x\nValueError: real\nException raised by y\nmore",
                    "errorCode": 1,
                    "timestamp": 1,
                },
                "\n *trainer[0]:FAILED (exitcode: 1)\n        timestamp: 1970-01-01 00:00:01"
                "\n        hostname: h0\n        error_msg: ValueError: real",
                id="the line before Exception",
            ),
            pytest.param(
                0,
                {"message": {"message": "x"}},
                "\n *trainer[0]:FAILED (exitcode: <N/A>)\n        timestamp: <N/A>"
                "\n        hostname: h0\n        error_msg: x",
                id="parts missing",
            ),
            pytest.param(
                0,
                "not JSON",
                "\n *trainer[0]:FAILED\n        timestamp: <N/A>\n        hostname: h0"
                "\n        error_msg: not JSON",
                id="any text",
            ),
            pytest.param(
                0,
                {"timestamp": "soon", "message": "m", "errorCode": 1},
                "\n *trainer[0]:FAILED (exitcode: 1)\n        timestamp: <N/A>"
                "\n        hostname: h0\n        error_msg: m",
                id="no time",
            ),
        ],
    )
    def test_an_error(self, id: int, payload: Any, entry: str) -> None:
        assert failed(replica(id, AppState.FAILED, payload)).format() == shown(entry)

    @pytest.mark.parametrize(
        "message",
        [
            "a" * 400_000,
            "w" * 400_000 + "('On WorkerInfo(",
            "w('On WorkerInfo(" * 20_000 + "):\n" + "a\n" * 20_000,
            "w('On WorkerInfo(x):\n" * 20_000,
            "x" * 400_000 + "\nException",
            "[" * 400_000,
        ],
        ids=lambda message: message[:20],
    )
    def test_a_long_message_takes_linear_time(self, message: str) -> None:
        message *= 4  # Quadratic time would take minutes.
        failed(replica(0, AppState.FAILED, {"message": message})).format()
        failed(replica(0, AppState.FAILED, message)).format()

    @pytest.mark.parametrize("payload", ["[1]", "{}", '"x"', '{"other": 1}', "null", "1"])
    def test_json_that_is_no_error_is_shown_as_it_is(self, payload: str) -> None:
        text = failed(replica(0, AppState.FAILED, payload)).format()
        assert f"error_msg: {payload}\n" in text

    def test_what_else_is_known_of_a_replica(self) -> None:
        text = failed(
            replica(0, AppState.FAILED, exit_code=137, reason="OOMKilled", node="n7", restarts=2),
            replica(1, AppState.RUNNING, node="h1"),
        ).format()
        assert (
            "*trainer[0]:FAILED (exitcode: 137, reason: OOMKilled, node: n7, restarts: 2)" in text
        )
        assert "\n  trainer[1]:RUNNING\n" in text

    def test_chosen_roles(self) -> None:
        status = AppStatus(
            AppState.RUNNING,
            roles=[RoleStatus("a", []), RoleStatus("trainer", [replica(0, AppState.RUNNING)])],
        )
        assert "trainer[0]" in status.format(filter_roles=["trainer"])
        assert "trainer[0]" not in status.format(filter_roles=["a", "unknown"])
        assert [r["role"] for r in status.to_json(["trainer"])["roles"]] == ["trainer"]


class TestJson:
    def test_times_have_a_zone(self) -> None:
        started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
        status = failed(replica(0, AppState.FAILED, started=started))
        (found,) = json.loads(json.dumps(status.to_json()))["roles"][0]["replicas"]
        assert (found["started"], found["ended"]) == ("2026-01-02T03:04:05Z", None)
        assert "started" not in repr(status)

    def test_keys(self) -> None:
        status = failed(replica(0, AppState.FAILED, exit_code=3))
        data = json.loads(json.dumps(status.to_json()))
        assert list(data) == [
            "state",
            "num_restarts",
            "roles",
            "msg",
            "structured_error_msg",
            "url",
        ]
        assert data["state"] == "FAILED"
        (found,) = data["roles"][0]["replicas"]
        assert found == {
            "id": 0,
            "state": 5,
            "state_name": "FAILED",
            "role": "trainer",
            "hostname": "h0",
            "hostaddr": "h0",
            "structured_error_msg": NONE,
            "reason": "",
            "exit_code": 3,
            "node": None,
            "restarts": 0,
            "started": None,
            "ended": None,
        }

    def test_the_address_is_the_host_s_name_unless_known(self) -> None:
        assert replica(1, AppState.RUNNING).hostaddr == "h1"
        assert replica(1, AppState.RUNNING, hostaddr="10.0.0.1").hostaddr == "10.0.0.1"


texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", " ", "yes", "null", "1", "1e3", "a: b", "- x", "#c", "a #c", "'", "x:"]),
)
statuses = st.builds(
    AppStatus,
    state=st.sampled_from(AppState),
    num_restarts=st.integers(),
    msg=texts,
    structured_error_msg=st.one_of(
        texts,
        st.just(NONE),
        st.recursive(
            texts | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none(),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
            max_leaves=5,
        ).map(json.dumps),
    ),
    ui_url=st.none() | texts,
    roles=st.lists(
        st.builds(
            RoleStatus,
            role=texts,
            replicas=st.lists(
                st.builds(
                    ReplicaStatus,
                    id=st.integers(0, 9),
                    state=st.sampled_from(AppState),
                    role=texts,
                    hostname=texts,
                    reason=texts,
                ),
                max_size=2,
            ),
        ),
        max_size=2,
    ),
)


class TestRepr:
    def test_it_is_yaml(self) -> None:
        assert repr(AppStatus(AppState.FAILED, msg="m", structured_error_msg='{"a": [1]}')) == (
            "AppStatus:\n"
            "  msg: m\n"
            "  num_restarts: 0\n"
            "  roles: []\n"
            "  state: FAILED (5)\n"
            "  structured_error_msg:\n"
            "    a:\n"
            "      - 1\n"
            "  ui_url: null\n"
        )

    def test_it_is_json_without_a_yaml_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        data = json.loads(repr(AppStatus(AppState.FAILED, structured_error_msg="[NaN]")))
        assert data["AppStatus"]["state"] == "FAILED (5)"

    @given(statuses)
    def test_a_safe_loader_reads_it(self, status: AppStatus) -> None:
        yaml = pytest.importorskip("yaml")
        data = yaml.safe_load(repr(status))["AppStatus"]
        assert data["msg"] == status.msg
        assert data["ui_url"] == status.ui_url
        assert data["num_restarts"] == status.num_restarts
        assert data["state"] == f"{status.state.name} ({int(status.state)})"
        try:
            error = json.loads(status.structured_error_msg)
        except ValueError:
            error = status.structured_error_msg
        assert data["structured_error_msg"] == error
        for given_, found in zip(status.roles, data["roles"], strict=True):
            assert found["role"] == given_.role
            assert [r["hostname"] for r in found["replicas"]] == [
                r.hostname for r in given_.replicas
            ]
