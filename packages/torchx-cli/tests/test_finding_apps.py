"""Tests of ``torchx list`` over all schedulers, and of short names of apps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchx_specs import AppState
from torchx_specs.errors import BackendError, RequestError, TorchXError
from torchx_specs.schedulers.features import SchedulerFeatures

HEADER = "APP    APP NAME    APP STATUS    AGE    DURATION    EXIT    APP HANDLE\n"


def ago(**delta: float) -> datetime:
    return datetime.now(timezone.utc) - timedelta(**delta)


def names(cli: Any, *words: str) -> list[str]:
    return [app["name"] for app in json.loads(cli("list", "--json", *words).out)]


# -- torchx list


def test_list_has_columns_for_age_duration_and_exit_code(
    cli: Any, plugin: Any, components: str
) -> None:
    assert (
        cli("list").out
        == f"{HEADER}-----  ----------  ------------  -----  ----------  ------  ------------\n"
    )
    plugin.add(
        "a-0",
        "a",
        states=[AppState.FAILED],
        times={"submitted": ago(hours=2), "started": ago(minutes=90), "ended": ago(minutes=60)},
        exit_code=3,
    )
    plugin.add(
        "b-1",
        "b",
        states=[AppState.RUNNING],
        times={"submitted": ago(days=3, hours=2, minutes=1), "started": ago(days=3)},
    )
    rows = [line.split("  ") for line in cli("list", "-s", "fake").out.splitlines()[2:]]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["a-0", "a", "FAILED", "2 h", "30 min", "3", "fake://torchx/a-0"],
        ["b-1", "b", "RUNNING", "3 d 2 h", "3 d", "fake://torchx/b-1"],
    ]


def first_words(result: Any) -> list[str]:
    return [line.split()[0] for line in result.out.splitlines()[2:]]


def test_own_apps_have_the_short_names_that_commands_accept(
    cli: Any, plugin: Any, components: str
) -> None:
    for name in ("one", "two"):
        cli("run", "comp.py:job", "--name", name)
    plugin.add("theirs-7", "theirs")
    assert first_words(cli("list")) == ["@1", "@2", "theirs-7"]
    assert [app["number"] for app in json.loads(cli("list", "--json").out)] == [1, 2, None]
    for short, name in (("@2", "one-"), ("theirs-7", "theirs-")):
        assert f"/{name}" in json.loads(cli("status", "--json", short).out)["handle"]


def test_a_table_has_the_twenty_newest_apps(cli: Any, plugin: Any) -> None:
    for number in range(22):
        plugin.add(f"a{number}", "a", times={"submitted": ago(minutes=number)})
    newest = [f"a{number}" for number in range(22)]
    short = cli("list")
    assert first_words(short) == newest[:20]
    assert "these are the newest 20; --all lists the others, too" in short.err
    assert first_words(cli("list", "--all")) == newest
    assert first_words(cli("list", "-n", "21")) == newest[:21]
    assert len(json.loads(cli("list", "--json").out)) == 22
    Path(".torchxconfig").write_text("[cli:list]\nlimit = 3\n")
    assert first_words(cli("list")) == newest[:3]


@pytest.mark.parametrize(("columns", "last"), [(200, "APP HANDLE"), (80, "SCHEDULER")])
def test_handles_are_shown_if_the_terminal_is_wide_enough(
    columns: int, last: str, cli: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("run", "comp.py:job", "--name", "a-name-of-more-than-twenty-characters")
    monkeypatch.setattr("torchx_cli.output.printing.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = cli("list").out.splitlines()
    assert lines[0].rstrip().endswith(last)
    assert max(len(line.rstrip()) for line in lines) <= columns


def test_schedulers_that_were_never_used_are_not_asked(
    cli: Any, plugin: Any, others: Any, components: str
) -> None:
    others.hangs = "fourth"
    others.errors["third"] = BackendError("no third here")
    cli("run", "-s", "fake", "comp.py:job")
    result = cli("list")
    assert first_words(result) == ["@1"]
    [line] = result.err.splitlines()
    assert "not asked, as you never used them: other, third, fourth (-s NAME asks one)" in line
    Path(".torchxconfig").write_text("[third]\nqueue = q\n")
    warning, line = cli("list").err.splitlines()
    assert warning.endswith("WARNING  third: no third here")
    assert "never used them: other, fourth" in line
    Path(".torchxconfig").write_text("[cli:run]\nscheduler = other\n")
    others.add("b-1", "b")
    assert sorted(first_words(cli("list"))) == ["@1", "b-1"]


def test_list_data_has_times_and_nulls(cli: Any, plugin: Any) -> None:
    when = datetime(2026, 11, 23, 1, 2, 3, tzinfo=timezone.utc)
    plugin.add("a-0", "a", times={"submitted": when})
    expected = {
        "number": None,
        "handle": "fake://torchx/a-0",
        "app_id": "a-0",
        "name": "a",
        "state": "SUCCEEDED",
        "scheduler": "fake",
        "submitted": "2026-11-23T01:02:03Z",
        "started": None,
        "ended": None,
        "exit_code": None,
    }
    assert json.loads(cli("list", "--json").out) == [expected]
    assert yaml.safe_load(cli("list", "-o", "yaml").out) == [expected]


def test_list_filters(cli: Any, plugin: Any, components: str) -> None:
    for name, state, minutes in (
        ("job", AppState.RUNNING, 90),
        ("train-1", AppState.FAILED, 30),
        ("train-2", AppState.SUCCEEDED, 60),
    ):
        plugin.add(name, name, states=[state], times={"submitted": ago(minutes=minutes)})
    assert names(cli) == ["train-1", "train-2", "job"]
    assert names(cli, "--state", "running") == ["job"]
    assert names(cli, "--state", "RUNNING,FAILED") == ["train-1", "job"]
    assert names(cli, "--name", "train-*") == ["train-1", "train-2"]
    assert names(cli, "-n", "1") == ["train-1"]
    assert names(cli, "--since", "70m") == ["train-1", "train-2"]
    assert names(cli, "--mine") == []
    cli("run", "comp.py:job", "--name", "own")
    assert names(cli, "--mine") == ["own"]
    assert names(cli, "-n", "2") == ["own", "train-1"]


def test_list_queries_all_schedulers(cli: Any, plugin: Any, others: Any) -> None:
    plugin.add("a", "a", times={"submitted": ago(minutes=2)})
    others.add("b", "b", times={"submitted": ago(minutes=1)})
    handles = [app["handle"] for app in json.loads(cli("list", "--json").out)]
    assert handles == ["other://torchx/b", "fake://torchx/a"]
    assert names(cli, "-s", "fake") == ["a"]
    Path(".torchxconfig").write_text("[cli:list]\nscheduler = other\n")
    assert names(cli) == ["b"]


def test_a_limited_list_takes_no_more_apps_than_it_shows(
    cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        plugin.add(f"a{number}", f"a{number}", times={"submitted": ago(minutes=number)})
    scheduler = type(plugin.create("s"))
    taken: list[str] = []

    def list_newest(self: Any, cfg: Any = None) -> Iterator[Any]:
        for app in self.list(cfg):
            taken.append(app.name)
            yield app

    monkeypatch.setattr(scheduler, "list_newest", list_newest, raising=False)
    monkeypatch.setattr(scheduler, "features", replace(scheduler.features, newest_first=True))
    assert names(cli, "-n", "3") == ["a0", "a1", "a2"] == taken
    taken.clear()
    assert names(cli, "-n", "2", "--name", "a[57]") == ["a5", "a7"]
    assert taken == [f"a{number}" for number in range(8)]
    assert len(names(cli)) == 9


def test_list_is_the_method_of_a_subclass_that_overrides_it(plugin: Any) -> None:
    base: Any = type(plugin.create("s"))

    class Newest(base):
        features = SchedulerFeatures(newest_first=True)

        def list_newest(self, cfg: Any = None) -> Iterator[Any]:
            yield from ()

    class Older(Newest):
        def list(self, cfg: Any = None) -> list[Any]:
            return []

    assert not Older.features.newest_first


def test_a_failing_scheduler_is_one_line(cli: Any, plugin: Any, others: Any) -> None:
    plugin.add("a", "a")
    others.errors["third"] = BackendError("the queue\nis closed")
    result = cli("list", "--json")
    assert (result.code, [app["name"] for app in json.loads(result.out)]) == (0, ["a"])
    [line] = result.err.splitlines()
    assert line.endswith("WARNING  third: the queue is closed")
    assert cli("list", "-s", "third").code == 3


def test_failing_schedulers_that_are_not_in_use_share_a_line(cli: Any, others: Any) -> None:
    for name in ("third", "fourth"):
        others.errors[name] = BackendError(f"no {name} here")
    [line] = cli("list").err.splitlines()
    assert "2 schedulers cannot be used here, and have no section" in line
    assert "third, fourth" in line


def test_a_hanging_scheduler_is_one_line_after_the_time_limit(
    cli: Any, plugin: Any, others: Any
) -> None:
    plugin.add("a", "a")
    others.hangs = "fourth"
    result = cli("list", "--timeout", "500ms", "--json")
    assert [app["name"] for app in json.loads(result.out)] == ["a"]
    [line] = result.err.splitlines()
    assert line.endswith("WARNING  fourth: no answer within 0.5 s")


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ((BackendError, BackendError, BackendError), 3),
        ((RequestError, BackendError, RequestError), 3),
        ((RequestError, RequestError, RequestError), 2),
    ],
)
def test_list_fails_with_the_highest_exit_code_if_all_schedulers_fail(
    cli: Any, plugin: Any, others: Any, errors: tuple[type[TorchXError], ...], code: int
) -> None:
    plugin.schedulers = []
    for name, error in zip(("other", "third", "fourth"), errors, strict=True):
        others.errors[name] = error(f"no {name} here")
    result = cli("list")
    assert (result.code, result.out) == (code, "")
    assert result.err.splitlines() == [
        f"torchx: error: {name}: no {name} here" for name in ("other", "third", "fourth")
    ]


# -- short names of apps


@pytest.fixture
def submitted(cli: Any, plugin: Any, components: str) -> None:
    for name in ("train", "eval", "train"):
        cli("run", "comp.py:job", "--name", name, "--replicas", "2")


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    ("text", "app_id"),
    [
        ("@1", "train-2"),
        ("@2", "eval-1"),
        ("train", "train-2"),
        ("train-0", "train-0"),
        ("fake://eval", "eval-1"),
        ("fake://torchx/train-0", "train-0"),
    ],
)
def test_every_command_takes_short_names(text: str, app_id: str, cli: Any, plugin: Any) -> None:
    handle = f"fake://torchx/{app_id}"
    assert json.loads(cli("status", "--json", text).out)["handle"] == handle
    assert json.loads(cli("wait", "--json", text).out)["handle"] == handle
    assert json.loads(cli("describe", "--json", text).out)["name"] == app_id
    assert cli("log", f"{text}/main/1").out == "main/1 hello from 1\n"
    assert cli("log", text).out.count("hello") == 2
    plugin.apps[app_id].states = [AppState.RUNNING]
    result = cli("cancel", text)
    assert plugin.apps[app_id].cancelled
    assert (handle in result.err) == (text != handle)
    cli("delete", text)
    assert app_id not in plugin.apps


@pytest.mark.usefixtures("submitted")
def test_a_complete_handle_with_a_role_named_by_a_number_is_no_short_name(cli: Any) -> None:
    result = cli("log", "fake://torchx/train-0/1")
    assert "role '1'" in result.error
    assert cli("log", "fake://nope/main/1").error.startswith("unknown app: fake://nope/main")
    assert "matches 2 apps" in cli("log", "fake://train/main/1").error


@pytest.mark.usefixtures("submitted")
def test_ambiguous_and_unknown_short_names_are_one_line(cli: Any) -> None:
    result = cli("cancel", "fake://train")
    assert result.code == 2
    assert result.error == (
        "'fake://train' matches 2 apps: fake://torchx/train-2, fake://torchx/train-0; give a handle"
    )
    result = cli("status", "@9")
    assert (result.code, result.error) == (
        1,
        "unknown app: @9: the journal has 3 submissions of this user",
    )
    assert cli("log", "@9/main/0").code == 1
    result = cli("status", "fake://nosuch")
    assert (result.code, result.error) == (
        1,
        "unknown app: fake://nosuch: no app of fake has an id that begins so",
    )
    assert cli("status", "fak://x").code == 2
    for words in (
        ["status", "nosuch"],
        ["describe", "nosuch"],
        ["cancel", "nosuch"],
        ["delete", "nosuch"],
        ["wait", "nosuch"],
        ["log", "nosuch"],
        ["log", "nosuch/main/0"],
        ["diff", "nosuch"],
    ):
        result = cli(*words)
        assert (result.code, result.error) == (
            1,
            "unknown app: nosuch: no app has this name or id; 'torchx list' shows the apps",
        )


def test_an_app_of_another_user_is_found_by_its_name(cli: Any, plugin: Any, others: Any) -> None:
    others.add("b-1", "theirs")
    assert json.loads(cli("status", "theirs", "--json").out)["handle"] == "other://torchx/b-1"


def test_control_characters_in_a_name_do_not_reach_the_terminal(cli: Any) -> None:
    result = cli("status", "\033]0;x\007")
    assert result.code == 1
    assert "\033" not in result.err


# -- torchx cancel and delete with a selection


@pytest.fixture
def three_apps(plugin: Any, components: str) -> None:
    plugin.add("train-1", "train-a", states=[AppState.RUNNING])
    plugin.add("train-2", "train-b", states=[AppState.PENDING])
    plugin.add("train-3", "train-c", states=[AppState.FAILED])
    plugin.add("eval-4", "eval", states=[AppState.RUNNING])


def cancelled(plugin: Any) -> list[str]:
    return [app_id for app_id, app in plugin.apps.items() if app.cancelled]


def test_cancel_selects_apps_that_have_not_ended(three_apps: None, cli: Any, plugin: Any) -> None:
    refused = cli("cancel", "--name", "train-*")
    assert refused.code == 2
    assert "2 apps match; cancel them all with --yes" in refused.err
    assert "fake://torchx/train-1  RUNNING" in refused.err
    assert cancelled(plugin) == []
    assert cli("cancel", "--yes", "-s", "fake", "--name", "train-*").code == 0
    assert cancelled(plugin) == ["train-1", "train-2"]


def test_one_selected_app_is_cancelled_without_a_question(
    three_apps: None, cli: Any, plugin: Any
) -> None:
    done = cli("cancel", "--state", "PENDING")
    assert (done.code, "cancel fake://torchx/train-2" in done.err) == (0, True)
    assert cancelled(plugin) == ["train-2"]
    none = cli("cancel", "--name", "nothing")
    assert none.code == 0
    assert "no app matches; nothing changed" in none.err


def test_delete_selects_apps_that_have_ended_too(three_apps: None, cli: Any, plugin: Any) -> None:
    assert cli("delete", "-y", "--name", "train-*").code == 0
    assert list(plugin.apps) == ["eval-4"]


def test_cancel_needs_a_handle_or_a_selection(three_apps: None, cli: Any, plugin: Any) -> None:
    assert "which apps? Give a HANDLE, or select them" in cli("cancel").err
    both = cli("cancel", "--mine", "fake://torchx/train-1")
    assert both.code == 2
    assert cancelled(plugin) == []
