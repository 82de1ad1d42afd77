"""Tests of schedulers with the method ``log_iter``, and of records of features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from torchx_specs.errors import NotSupportedError
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs
from torchx_specs.schedulers.older import features_of

ALL = LogQuery()


class Base(Scheduler[Any]):
    """A scheduler with no optional ability."""

    def __init__(self) -> None:
        super().__init__("acme", "s")

    def _submit_dryrun(self, app: Any, cfg: Any) -> Any:
        raise AssertionError

    def schedule(self, dryrun_info: Any) -> str:
        return f"scheduled {dryrun_info}"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return None

    def list(self, cfg: Any = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None:
        pass


class PresentLogs(Logs[Scheduler[Any]]):
    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        return [f"present {role}/{k} regex={query.regex} last={query.last}\n"]

    def read_many(self, app_id: str, replicas: Any, query: LogQuery) -> Iterator[Any]:
        for role, k in replicas:
            yield (role, k), [f"present many {role}/{k}\n"]


class Present(Base):
    features = SchedulerFeatures(logs=True, last=True, ports=True)

    @property
    def app_logs(self) -> Logs[Any]:
        return PresentLogs(self)


class OlderReader:
    """A mixin with the method of older releases."""

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: Any = None,
        until: Any = None,
        should_tail: bool = False,
        streams: Any = None,
    ) -> Iterable[str]:
        return [f"older {role_name}/{k} regex={regex}\n", "end\n"]


class Older(OlderReader, Base):
    pass


def read(scheduler: Any, query: LogQuery = ALL) -> list[str]:
    return list(scheduler.app_logs.read("app", "main", 1, query))


def read_many(scheduler: Any, query: LogQuery = ALL) -> list[str]:
    blocks = scheduler.app_logs.read_many("app", [("main", 1)], query)
    return [line for _, block in blocks for line in block]


# -- the most derived definition wins


def test_both_forms_of_a_call_reach_a_present_scheduler() -> None:
    scheduler: Any = Present()
    assert list(scheduler.log_iter("app", "main", 1, regex="x", last=3)) == [
        "present main/1 regex=x last=3\n"
    ]


def test_both_forms_of_a_call_reach_an_older_scheduler() -> None:
    scheduler = Older()
    expected = ["older main/1 regex=x\n", "end\n"]
    query = LogQuery(regex="x")
    assert list(scheduler.log_iter("app", "main", 1, "x")) == expected
    assert read(scheduler, query) == read_many(scheduler, query) == expected


def test_a_log_iter_over_a_present_scheduler_reaches_it_by_super() -> None:
    class Client(Present):
        def log_iter(self, *args: Any, **options: Any) -> Iterable[str]:
            return [f"client {line}" for line in super().log_iter(*args, **options)]

    line = "client present main/1 regex=x last=None\n"
    query = LogQuery(regex="x")
    scheduler = Client()
    assert read(scheduler, query) == read_many(scheduler, query) == [line]
    assert list(scheduler.log_iter("app", "main", 1, "x")) == [line]
    assert not scheduler.features.last
    assert scheduler.features.ports


def test_app_logs_over_an_older_scheduler_reach_it_by_super() -> None:
    class Upper(Logs[Any]):
        def __init__(self, scheduler: Any, logs: Logs[Any]) -> None:
            super().__init__(scheduler)
            self._logs = logs

        def read(self, *args: Any) -> Iterable[str]:
            return [line.upper() for line in self._logs.read(*args)]

    class Client(Older):
        @property
        def app_logs(self) -> Logs[Any]:
            return Upper(self, super().app_logs)

    expected = ["OLDER MAIN/1 REGEX=NONE\n", "END\n"]
    scheduler = Client()
    assert read(scheduler) == read_many(scheduler) == expected
    assert list(scheduler.log_iter("app", "main", 1)) == expected


def test_forms_may_alternate() -> None:
    class First(Present):
        def log_iter(self, *args: Any) -> Iterable[str]:
            return ["first\n", *super().log_iter(*args)]

    class Second(First):
        @property
        def app_logs(self) -> Logs[Any]:
            return PresentLogs(self)

    class Third(Second):
        def log_iter(self, *args: Any) -> Iterable[str]:
            return ["third\n", *super().log_iter(*args)]

    present = "present main/1 regex=None last=None\n"
    assert read(First()) == ["first\n", present]
    assert read(Second()) == [present]
    assert read(Third()) == ["third\n", present]
    assert read_many(Second()) == ["present many main/1\n"]
    assert read_many(Third()) == ["third\n", present]


def test_a_mixin_before_a_scheduler_wins_and_one_after_it_does_not() -> None:
    class Before(OlderReader, Present):
        pass

    class After(Present, OlderReader):
        pass

    class PresentMixin:
        @property
        def app_logs(self) -> Any:
            return PresentLogs(self)  # type: ignore[arg-type]

    class PresentBefore(PresentMixin, Older):
        pass

    class PresentAfter(Older, PresentMixin):
        pass

    older = ["older main/1 regex=None\n", "end\n"]
    present = ["present main/1 regex=None last=None\n"]
    found = [read(kind()) for kind in (Before, After, PresentBefore, PresentAfter)]
    assert found == [older, present, present, older]
    called = [
        list(kind().log_iter("app", "main", 1))
        for kind in (Before, After, PresentBefore, PresentAfter)
    ]
    assert called == found


# -- a part of a group


def test_a_log_iter_replaces_all_readers_of_a_base() -> None:
    class Client(Present):
        def log_iter(self, *args: Any) -> Iterable[str]:
            return ["client\n"]

    assert read_many(Client()) == read(Client()) == ["client\n"]


# -- records


def test_a_class_without_a_record_has_that_of_its_base_unless_it_overrides_it() -> None:
    class Plugin(Older):
        def describe_native(self, app_id: str) -> None:
            return None

    class Recorded(Plugin):
        features = SchedulerFeatures(newest_first=True, last=True, kill=True)

    class Lists(Recorded):
        def list(self, cfg: Any = None) -> list[ListAppResponse]:
            return []

    class Reads(Lists):
        log_iter = OlderReader.log_iter

    assert Older.features == SchedulerFeatures(logs=True)
    assert Plugin.features == Plugin().features == SchedulerFeatures(logs=True, native=True)
    assert Lists.features == SchedulerFeatures(last=True, kill=True)
    assert Reads.features == SchedulerFeatures(logs=True, kill=True)


def test_the_error_of_a_feature_has_the_reason() -> None:
    features = SchedulerFeatures(exec=No("the nodes have no shell"))
    with pytest.raises(NotSupportedError, match="cannot run commands"):
        features.require("exec", "acme")
    assert str(features.error("exec", "acme")).endswith(": the nodes have no shell")
    assert str(features.error("ports", "acme")).endswith("cannot forward ports of replicas")
    replace(features, exec=True).require("exec", "acme")
    assert (bool(No("x")), repr(No("x")), No("x") == No("x")) == (False, "No('x')", True)


# -- an object that is no Scheduler


def test_an_object_that_is_no_scheduler_has_a_record() -> None:
    class Double:
        features: object = "another attribute"

    double = Double()
    assert features_of(double) == features_of(object()) == SchedulerFeatures()
    double.features = SchedulerFeatures(exec=True)
    assert features_of(double).exec
