"""Tests of ``torchx watch``, and of notifications: when they are sent, their data, failures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import torchx_kit.plugin
from torchx_cli import notifications
from torchx_notify import delivery
from torchx_specs import AppState
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.hookspecs import NotifierPlugin, hookimpl
from torchx_specs.model.status import AppStatus, ReplicaStatus, RoleStatus
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import ALL

HANDLE = "fake://torchx/first-0"


class NotifierTypes:
    """Registers ``memory``, ``failing``, ``hanging``, ``picky`` and ``broken``, and ``*``."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.release = threading.Event()

    def memory(self, config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
        label = config.get("label", "")
        return lambda data: self.sent.append((label, dict(data)))

    def failing(self, config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
        def notify(data: Mapping[str, Any]) -> None:
            raise ConnectionError("no route to https://me:hunter2@host")

        return notify

    def hanging(self, config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
        return lambda data: self.release.wait(60) and None

    def picky(self, config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
        raise RequestError("the key 'url' is missing")

    def broken(self, config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
        raise KeyError("url")

    @hookimpl
    def torchx_notifiers(self) -> Iterable[NotifierPlugin]:
        yield NotifierPlugin(ALL, delivery.Deliveries)
        for name in ("memory", "failing", "hanging", "picky", "broken"):
            yield NotifierPlugin(name, getattr(self, name))


@pytest.fixture
def types(plugin: Any, tmp_path: Path) -> Iterable[NotifierTypes]:
    found = NotifierTypes()
    get_manager().register(found, "types")
    (tmp_path / ".torchxconfig").write_text(
        "[notifier:a]\ntype = memory\nlabel = A\n[notifier:b]\ntype = memory\nlabel = B\n"
        "[notifier:failing]\n[notifier:hanging]\n[notifier:picky]\n[notifier:broken]\n"
        "[notifier:odd]\ntype = carrier-pigeon\n"
    )
    yield found
    found.release.set()


def run(cli: Any, *words: str, end: str = "SUCCEEDED") -> Any:
    return cli("run", "-s", "fake", "-cfg", f"end={end}", *words, "comp.py:job", "--name", "train")


@pytest.fixture
def app(cli: Any, plugin: Any, components: str, types: NotifierTypes) -> Any:
    """Submit an app, and return it."""
    cli("run", "-s", "fake", "comp.py:job", "--name", "first")
    return plugin.apps["first-0"]


# -- torchx run --notify


@pytest.mark.parametrize(("end", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELLED", 1)])
def test_run_waits_and_notifies(
    cli: Any, components: str, types: NotifierTypes, end: str, code: int
) -> None:
    result = run(cli, "--notify", "a", end=end)
    assert result.code == code
    ((label, data),) = types.sent
    assert label == "A"
    assert data == {
        "version": 1,
        "event": "job.ended",
        "handle": result.out.strip(),
        "app_id": "train-0",
        "scheduler": "fake",
        "name": "train",
        "state": end,
        "submitted": data["submitted"],
        "started": None,
        "ended": None,
        "summary": data["summary"],
        "first_failure": data["first_failure"],
        "ui_url": None,
    }
    json.dumps(data)


def test_several_notifiers_get_one_notification_each(
    cli: Any, components: str, types: NotifierTypes
) -> None:
    assert run(cli, "--notify", "a,b", "--notify", "a").code == 0
    assert sorted(label for label, _ in types.sent) == ["A", "B"]


def test_notification_has_the_first_failure_with_secrets_masked(
    cli: Any, app: Any, types: NotifierTypes
) -> None:
    error = {"message": {"message": "cannot push to https://me:hunter2@host/x"}}
    replica = ReplicaStatus(
        3, AppState.FAILED, "main", "h", json.dumps(error), exit_code=1, node="n9"
    )
    app.states, app.roles = [AppState.FAILED], [RoleStatus("main", [replica])]
    app.times = {"ended": datetime(2026, 11, 21, 10, tzinfo=timezone.utc)}
    assert cli("watch", "--notify", "a", HANDLE).code == 1
    ((_, data),) = types.sent
    assert data["ended"] == "2026-11-21T10:00:00Z"
    assert data["first_failure"]["replica"] == 3
    assert data["first_failure"]["exit_code"] == 1
    assert data["first_failure"]["message"] == "cannot push to https://me:***@host/x"
    assert "hunter2" not in json.dumps(data)


@pytest.mark.parametrize("name", ["failing", "hanging"])
def test_failing_notifier_is_a_warning_and_the_others_are_sent(
    cli: Any, components: str, types: NotifierTypes, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(delivery, "DEADLINE", 0.3)
    result = run(cli, "--notify", f"{name},a")
    assert result.code == 0
    assert [label for label, _ in types.sent] == ["A"]
    warnings = [line for line in result.err.splitlines() if f"notifier {name}" in line]
    assert len(warnings) == 1
    assert "hunter2" not in result.err
    if name == "failing":
        assert warnings[0].endswith("ConnectionError: no route to https://me:***@host")


def test_all_slow_notifiers_are_given_up_at_the_same_time(caplog: Any) -> None:
    begun, released = threading.Barrier(3), threading.Event()

    def hang(data: Mapping[str, Any]) -> None:
        begun.wait(60)
        released.wait(60)

    workers = [delivery._Worker(name, hang) for name in "ab"]
    for worker in workers * 3:
        worker.waiting.put({})
    begun.wait(60)
    for worker in workers:
        worker.finish(5.0, began=time.monotonic() - 6)
    messages = list(caplog.messages)
    begun.abort()
    released.set()
    message = "notifier {} is given up after 5 s; 3 of its notifications may be lost"
    assert messages == [message.format("a"), message.format("b")]


def test_a_notifier_gets_no_control_characters(
    types: NotifierTypes, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = SimpleNamespace(name="train\x1b[31m")
    monkeypatch.setattr(notifications, "find_submission", lambda handle: submission)
    status = AppStatus(AppState.FAILED, msg="a\x1b[2Jb\x1b[31mc\x07", ui_url="x\x9bm")
    data = notifications.job_ended(HANDLE, status)
    assert data["name"] == r"train\u001b[31m"
    assert data["summary"] == r"FAILED: a\u001b[2Jb\u001b[31mc\u0007"
    assert data["ui_url"] == r"x\u009bm"


def test_a_wait_for_a_slow_notifier_is_announced(
    cli: Any, components: str, types: NotifierTypes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "DEADLINE", 0.3)
    monkeypatch.setattr(delivery, "QUIET", 0.0)
    result = run(cli, "--notify", "hanging")
    assert result.err.count("notifier hanging has not sent its notification yet; waiting") == 1


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("c", 2, "--notify c: .torchxconfig has no section [notifier:c]; notifiers: a, b"),
        ("faling", 2, "did you mean 'failing'?"),
        ("odd", 2, "[notifier:odd] type: there is no notifier 'carrier-pigeon'"),
        ("picky", 2, "[notifier:picky]: the key 'url' is missing"),
        ("broken", 2, "notifier 'broken' of types failed for [notifier:broken]: KeyError"),
    ],
)
def test_unusable_notifier_is_an_error_before_the_submission(
    cli: Any, plugin: Any, components: str, types: NotifierTypes, name: str, code: int, message: str
) -> None:
    result = run(cli, "--notify", name)
    assert result.code == code
    assert message in result.error
    assert plugin.apps == {}


def test_missing_plugin_is_an_error_before_the_submission(
    cli: Any, plugin: Any, components: str, types: NotifierTypes
) -> None:
    get_manager().block(["types"])
    get_manager().register(torchx_kit.plugin, "kit")
    result = run(cli, "--notify", "a")
    problem = "--notify: no plugin sends notifications; run: pip install torchx-notify"
    assert (result.code, result.error, plugin.apps) == (2, problem, {})


@pytest.mark.parametrize("option", ["--no-wait", "--detach"])
def test_notify_contradicts_an_option_that_does_not_wait(
    cli: Any, plugin: Any, components: str, types: NotifierTypes, tmp_path: Path, option: str
) -> None:
    result = run(cli, "--notify", "a", option)
    assert result.code == 2
    assert f"{option} does not; 'torchx watch --notify a @1' notifies later" in result.error
    assert plugin.apps == {}
    with (tmp_path / ".torchxconfig").open("a") as file:
        file.write("[cli:run]\nnotify = a,b\n")
    assert run(cli, option).code == 0
    assert types.sent == []
    assert run(cli).code == 0
    assert len(types.sent) == 2


def test_dry_run_notifies_nobody(cli: Any, components: str, types: NotifierTypes) -> None:
    assert run(cli, "--notify", "a", "--dryrun").code == 0
    assert types.sent == []


# -- torchx watch


def test_watch_shows_each_state_and_notifies_once(cli: Any, app: Any, types: NotifierTypes) -> None:
    app.states = [AppState.PENDING, AppState.PENDING, AppState.RUNNING, AppState.SUCCEEDED]
    result = cli("watch", "--interval", "0.1s", "--notify", "a", "@1")
    assert result.code == 0
    shown = [line.split()[2:5] for line in result.out.splitlines()]
    assert [words[:2] for words in shown] == [[HANDLE, "first"]] * len(shown)
    assert shown[-1][2].startswith("SUCCEEDED")
    assert [data["state"] for _, data in types.sent] == ["SUCCEEDED"]


def test_watch_prints_json_lines(cli: Any, app: Any) -> None:
    app.states = [AppState.RUNNING, AppState.RUNNING, AppState.FAILED]
    result = cli("watch", "--interval", "0.1s", "--json", "@1")
    assert result.code == 1
    states = [json.loads(line)["state"] for line in result.out.splitlines()]
    assert states[-1] == "FAILED"
    assert json.loads(result.out.splitlines()[0])["time"].endswith("Z")


def test_watch_of_a_missing_app_fails_and_notifies(
    cli: Any, components: str, types: NotifierTypes
) -> None:
    result = cli("watch", "--notify", "a", "fake://torchx/gone")
    assert result.code == 1
    assert "UNKNOWN: the scheduler no longer has this app" in result.out
    assert types.sent[0][1]["state"] == "UNKNOWN"


def test_watch_goes_on_after_an_error_of_the_scheduler(
    cli: Any, app: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = type(plugin.create("s"))
    describe = scheduler.describe
    errors: list[Exception] = [BackendError("no answer"), BackendError("no answer")]

    def failing(self: Any, app_id: str) -> Any:
        if errors:
            raise errors.pop()
        return describe(self, app_id)

    app.states = [AppState.SUCCEEDED]
    monkeypatch.setattr(scheduler, "describe", failing)
    result = cli("watch", "--interval", "0.1s", HANDLE)
    assert result.code == 0
    assert result.err.count("no answer; it is queried again") == 1
    assert "answers again" in result.err


def test_watch_needs_handles_of_a_known_scheduler(cli: Any, app: Any) -> None:
    assert cli("watch").code == 2
    assert cli("watch", "nosuch://s/a").code == 2


def test_watch_ends_when_the_last_app_has_ended(cli: Any, plugin: Any, app: Any) -> None:
    app.states = [AppState.SUCCEEDED]
    plugin.add("theirs", "theirs", states=[AppState.RUNNING, AppState.RUNNING, AppState.SUCCEEDED])
    result = cli("watch", "--interval", "0.1s", HANDLE, "fake://torchx/theirs")
    assert result.code == 0
    shown = [line.split()[2:5] for line in result.out.splitlines()]
    assert shown[0] == [HANDLE, "first", "SUCCEEDED"]
    assert shown[-1] == ["fake://torchx/theirs", "theirs", "SUCCEEDED"]
