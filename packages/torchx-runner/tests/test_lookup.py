"""Tests of the search for apps by short names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from torchx_runner.submissions import journal
from torchx_runner.submissions.all_schedulers import ListedApps
from torchx_runner.submissions.lookup import (
    AmbiguousAppError,
    AppNotFoundError,
    find_app,
)
from torchx_specs import AppDef, AppDryRunInfo, AppState
from torchx_specs.errors import BackendError, MalformedAppHandleException, RequestError
from torchx_specs.schedulers import ListAppResponse

NOW = datetime(2026, 11, 23, tzinfo=timezone.utc)


def submit(handle: str, name: str) -> None:
    run_input = journal.RunInput(AppDef(name), {})
    journal.JournalEntry(run_input, AppDryRunInfo(None, repr)).write(handle)


def listed(handle: str, name: str = "", minutes_ago: int | None = None) -> ListAppResponse:
    when = None if minutes_ago is None else NOW - timedelta(minutes=minutes_ago)
    app_id = handle.rpartition("/")[2]
    return ListAppResponse(app_id, AppState.RUNNING, handle, name, submitted=when)


def never(scheduler: str | None) -> ListedApps:
    raise AssertionError(f"queried: {scheduler}")


def having(
    *apps: ListAppResponse, errors: dict[str, Exception] | None = None
) -> Callable[[str | None], ListedApps]:
    return lambda scheduler: ListedApps({"s": list(apps)}, errors or {})


@pytest.fixture
def submitted() -> None:
    submit("slurm://torchx/17", "train")
    submit("k8s://torchx/ns:train-a1", "train")
    submit("k8s://torchx/ns:train-b1", "eval")


@pytest.mark.parametrize("handle", ["slurm://torchx/17", "x:///1", "a://b/c/d", "nosuch://a/b"])
def test_a_handle_is_returned_unchanged_without_a_search(
    handle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_file_names", never)
    assert find_app(handle, never) == handle


@pytest.mark.usefixtures("submitted")
@pytest.mark.parametrize(
    ("text", "handle"),
    [
        ("@1", "k8s://torchx/ns:train-b1"),
        ("@2", "k8s://torchx/ns:train-a1"),
        ("@3", "slurm://torchx/17"),
        ("slurm://1", "slurm://torchx/17"),
        ("k8s://train-a", "k8s://torchx/ns:train-a1"),
        ("k8s://ns:train-b1", "k8s://torchx/ns:train-b1"),
        ("train", "k8s://torchx/ns:train-a1"),
        ("eval", "k8s://torchx/ns:train-b1"),
        ("17", "slurm://torchx/17"),
        ("train-a1", "k8s://torchx/ns:train-a1"),
    ],
)
def test_submissions_of_this_user_are_found_without_a_query(text: str, handle: str) -> None:
    assert find_app(text, never) == handle


@pytest.mark.usefixtures("submitted")
def test_an_ambiguous_prefix_lists_its_candidates() -> None:
    with pytest.raises(AmbiguousAppError) as caught:
        find_app("k8s://train", never)
    assert str(caught.value) == (
        "'k8s://train' matches 2 apps: k8s://torchx/ns:train-b1, k8s://torchx/ns:train-a1;"
        " give a handle"
    )
    assert caught.value.exit_code == 2


def test_a_complete_id_wins_over_longer_ids() -> None:
    for number in (1, 12, 123):
        submit(f"slurm://torchx/{number}", "x")
    assert find_app("slurm://12", never) == "slurm://torchx/12"


def test_many_candidates_are_counted() -> None:
    apps = [listed(f"s://t/x{number}") for number in range(30)]
    with pytest.raises(AmbiguousAppError, match=r"matches 30 apps: .*, and 20 more;"):
        find_app("s://x", having(*apps))


def test_apps_of_others_are_found_by_a_query() -> None:
    apps = [listed("s://t/a1", "train", 5), listed("s://t/a2", "train", 3), listed("s://t/b", "z")]
    assert find_app("s://b", having(*apps)) == "s://t/b"
    assert find_app("train", having(*apps)) == "s://t/a2"
    assert find_app("z", having(*apps)) == "s://t/b"


def test_apps_of_one_name_without_times_are_ambiguous() -> None:
    with pytest.raises(AmbiguousAppError, match="s://t/a1, s://t/a2"):
        find_app("train", having(listed("s://t/a1", "train"), listed("s://t/a2", "train")))


def test_unknown_short_names() -> None:
    with pytest.raises(AppNotFoundError, match="@1: the journal has no submissions") as caught:
        find_app("@1", never)
    assert caught.value.exit_code == 1
    submit("s://t/a", "a")
    with pytest.raises(AppNotFoundError, match="@2: the journal has 1 submission of"):
        find_app("@2", never)
    with pytest.raises(RequestError, match="the last submission is @1"):
        find_app("@0", never)
    for text in ("@last", "@-1", "@"):
        with pytest.raises(RequestError, match="the last submission is @1"):
            find_app(text, never)
    with pytest.raises(AppNotFoundError, match="s://q: no app of s has an id that begins so"):
        find_app("s://q", having())
    down = having(errors={"slurm": BackendError("down")})
    unanswered = (
        r"nosuch: no app has this name or id \(no answer from: slurm\); 'torchx list' shows"
    )
    with pytest.raises(AppNotFoundError, match=unanswered) as caught:
        find_app("nosuch", down)
    assert caught.value.exit_code == 1
    with pytest.raises(BackendError, match="down"):
        find_app("slurm://7", down)


@pytest.mark.parametrize("text", ["", " ", "slurm:/a/1", "slurm://", "://x", "s://a b"])
def test_a_malformed_handle_is_not_searched(text: str) -> None:
    with pytest.raises(MalformedAppHandleException):
        find_app(text, never)
