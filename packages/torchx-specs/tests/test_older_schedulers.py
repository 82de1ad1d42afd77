"""Tests of schedulers with methods of older releases, and of records of features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from torchx_specs.errors import NotSupportedError
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs
from torchx_specs.schedulers.older import features_of
from torchx_specs.schedulers.sessions import Sessions

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
    features = SchedulerFeatures(logs=True, last=True, exec=True, ports=True)

    @property
    def app_logs(self) -> Logs[Any]:
        return PresentLogs(self)

    @property
    def app_sessions(self) -> Sessions[Any]:
        return PresentSessions(self)


class PresentSessions(Sessions[Scheduler[Any]]):
    def open(self, app_id: str, role: str, k: int, command: Any, **options: Any) -> Any:
        return f"present session {role}/{k} {command} {options}"

    def connect(self, app_id: str, role: str, k: int, port: int) -> Any:
        return f"present port {port}"


class OlderReader:
    """A mixin with methods of older releases."""

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
    assert [*scheduler.log_blocks("app", [("main", 1)])] == [
        (("main", 1), ["present many main/1\n"])
    ]
    assert scheduler.open_session("app", role_name="main", k=1, command=["true"], stdin=True) == (
        "present session main/1 ['true'] {'stdin': True}"
    )
    assert scheduler.open_port("app", "main", 0, port=80) == "present port 80"


def test_both_forms_of_a_call_reach_an_older_scheduler() -> None:
    scheduler = Older()
    expected = ["older main/1 regex=x\n", "end\n"]
    query = LogQuery(regex="x")
    assert list(scheduler.log_iter("app", "main", 1, "x")) == expected
    assert read(scheduler, query) == read_many(scheduler, query) == expected


@pytest.mark.parametrize("last", [0, 1, 5])
def test_last_lines_of_an_older_scheduler(last: int) -> None:
    lines = ["older main/1 regex=None\n", "end\n"]
    assert read(Older(), LogQuery(last=last)) == lines[len(lines) - min(last, 2) :]

    class Reads(Older):
        def log_iter(self, *args: Any, last: int | None = None) -> Iterable[str]:
            return [f"last={last}\n"]

    assert read(Reads(), LogQuery(last=last)) == [f"last={last}\n"]


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


def test_sessions_and_arrays_over_an_older_scheduler_reach_it_by_super() -> None:
    class Plugin(Base):
        def open_session(
            self, app_id: str, role_name: str, k: int, command: Any, **options: Any
        ) -> Any:
            return "older session"

        def submit_many(self, dryrun_infos: Iterable[Any]) -> Iterator[str]:
            yield from (f"older {info}" for info in dryrun_infos)

    class Client(Plugin):
        @property
        def app_sessions(self) -> Sessions[Any]:
            return super().app_sessions

        @property
        def app_arrays(self) -> Arrays[Any]:
            return super().app_arrays

    scheduler: Any = Client()
    assert scheduler.app_sessions.open("app", "main", 0, ["true"]) == "older session"
    assert scheduler.open_session("app", "main", 0, ["true"]) == "older session"
    assert list(scheduler.app_arrays.submit(["a"])) == ["older a"]
    assert list(scheduler.submit_many(["a"])) == ["older a"]
    with pytest.raises(NotSupportedError, match="limit how many"):
        list(scheduler.app_arrays.submit(["a"], 1))


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


def test_log_blocks_over_a_present_scheduler_replace_the_reading_of_many_logs_only() -> None:
    class Client(Present):
        def log_blocks(self, app_id: str, replicas: Any, *args: Any) -> Iterator[Any]:
            yield ("main", 1), ["client\n"]

    assert read_many(Client()) == ["client\n"]
    assert read(Client()) == ["present main/1 regex=None last=None\n"]


def test_log_blocks_that_return_none_leave_the_logs_to_threads() -> None:
    class Plugin(Older):
        def log_blocks(self, app_id: str, replicas: Any, *args: Any) -> None:
            return None

    assert read_many(Plugin()) == ["older main/1 regex=None\n", "end\n"]


def test_one_method_of_sessions_over_a_present_scheduler() -> None:
    class Client(Present):
        def open_port(self, app_id: str, role_name: str, k: int, port: int) -> Any:
            return f"client {super().open_port(app_id, role_name, k, port)}"  # type: ignore[misc]

    sessions = Client().app_sessions
    assert sessions.connect("app", role="main", k=0, port=80) == "client present port 80"
    session: object = sessions.open("app", "main", 0, ["true"])
    assert session == "present session main/0 ['true'] {}"
    with pytest.raises(NotSupportedError):
        sessions.read_archive("app", "main", 0, "/file")


def test_one_method_of_arrays() -> None:
    class Plugin(Base):
        def cancel_many(self, app_ids: Iterable[str]) -> None:
            self.cancelled = list(app_ids)

    plugin = Plugin()
    plugin.app_arrays.cancel(["a", "b"])
    assert plugin.cancelled == ["a", "b"]
    infos: Any = ["x"]
    assert list(plugin.app_arrays.submit(infos)) == ["scheduled x"]
    assert plugin.features == SchedulerFeatures(mass_cancel=True)


# -- records


def test_a_record_is_derived_from_what_a_class_overrides() -> None:
    class Plugin(Base):
        resolves_secrets = True
        repeats_log_order = False
        lacks = {"times": "none are kept", "exotic": "not a feature"}

        def log_iter(self, *args: Any, last: int | None = None, **options: Any) -> Iterable[str]:
            return []

        def submit_many(self, dryrun_infos: Any, max_parallel: int | None = None) -> Iterator[str]:
            yield from ()

        def kill(self, app_id: str) -> None:
            pass

    class Limited(Plugin):
        def submit_many(self, dryrun_infos: Any) -> Iterator[str]:  # type: ignore[override]
            yield from ()

    expected = SchedulerFeatures(
        secrets=True,
        log_order=False,
        times=No("none are kept"),
        logs=True,
        last=True,
        arrays=True,
        array_limit=True,
        kill=True,
    )
    assert Plugin.features == Plugin().features == expected
    assert Limited.features == replace(expected, array_limit=False)
    assert Plugin.features.lacks() == {"times": "none are kept"}


def test_a_record_hides_what_bases_derive() -> None:
    class Plugin(Older):
        features = SchedulerFeatures(logs=True, kill=True)

    class Derived(Plugin):
        lacks = {"kill": "no more"}

    assert Older.features == SchedulerFeatures(logs=True)
    assert Derived.features == SchedulerFeatures(logs=True, kill=No("no more"))


def test_the_error_of_a_feature_has_the_reason() -> None:
    features = SchedulerFeatures(exec=No("the nodes have no shell"))
    with pytest.raises(NotSupportedError, match="cannot run commands"):
        features.require("exec", "acme")
    assert str(features.error("exec", "acme")).endswith(": the nodes have no shell")
    assert str(features.error("ports", "acme")).endswith("cannot forward ports of replicas")
    replace(features, exec=True).require("exec", "acme")
    assert (bool(No("x")), repr(No("x")), No("x") == No("x")) == (False, "No('x')", True)


# -- methods with another purpose


class OtherPurpose(Base):
    def submit_many(self) -> str:
        return "many"

    def cancel_many(self, app_ids: Sequence[str]) -> None:
        self.cancelled = app_ids

    def log_blocks(self, app_id: str, size: int) -> str:
        return "blocks"

    def open_session(self, user: str) -> str:
        return "session"

    @property
    def kill(self) -> str:  # type: ignore[override]
        return "property"

    def wait(self, seconds: float) -> str:  # type: ignore[override]
        return "waited"


def test_a_method_with_another_purpose_is_no_feature_and_is_not_called() -> None:
    class Derived(OtherPurpose):
        pass

    for scheduler in (OtherPurpose(), Derived()):
        assert scheduler.features == SchedulerFeatures(mass_cancel=True)
        infos: Any = ["x"]
        assert list(scheduler.app_arrays.submit(infos)) == ["scheduled x"]
        scheduler.app_arrays.cancel(["a"])
        assert scheduler.cancelled == ["a"]
        with pytest.raises(NotSupportedError):
            scheduler.app_sessions.open("app", "main", 0, ["true"])
        with pytest.raises(NotSupportedError):
            read(scheduler)


def test_a_method_with_another_purpose_stays() -> None:
    scheduler = OtherPurpose()
    assert (scheduler.submit_many(), scheduler.log_blocks("app", 1)) == ("many", "blocks")
    assert (scheduler.open_session("u"), scheduler.wait(1)) == ("session", "waited")


# -- an object that is no Scheduler


def test_an_object_that_is_no_scheduler_has_derived_features() -> None:
    class Double:
        resolves_secrets = True

        def log_iter(self, app_id: str, role_name: str, k: int = 0) -> list[str]:
            return []

        def wait(self, app_id: str, timeout: float | None = None) -> bool:
            return True

    assert features_of(Double()) == SchedulerFeatures(secrets=True, logs=True, watch=True)
    assert features_of(object()) == SchedulerFeatures()
    own = Double()
    own.features = SchedulerFeatures(exec=True)  # type: ignore[attr-defined]
    assert features_of(own).exec
