"""Tests of what several threads of a process use for the first time at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from torchx_specs.hookspecs import SchedulerPlugin, hookimpl
from torchx_specs.once import once
from torchx_specs.plugins.manager import PluginManager, get_manager, set_manager

THREADS = 32
SCHEDULER = """
from torchx_specs.hookspecs import SchedulerPlugin, hookimpl

@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("{}", "json:loads")
"""


@pytest.fixture
def meeting() -> Iterator[Any]:
    """Yield a module, ``meeting``, by which the modules of plugins meet the test."""
    module: Any = ModuleType("meeting")
    module.is_reached, module.other_has_ended = threading.Event(), threading.Event()
    sys.modules["meeting"] = module
    yield module
    for name in ("meeting", "first", "second"):
        sys.modules.pop(name, None)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that installs a plugin, which is one module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TORCHX_PLUGINS_DISABLED", raising=False)

    def install(name: str, code: str) -> None:
        (tmp_path / f"{name}.py").write_text(dedent(code) + SCHEDULER.format(name))
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "entry_points.txt").write_text(f"[torchx]\nmain = {name}\n")

    return install


def together(function: Callable[[], Any]) -> list[Any]:
    """Return the results of a function that many threads call at the same time."""
    barrier = threading.Barrier(THREADS)

    def call() -> Any:
        barrier.wait()
        return function()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            return [future.result() for future in [pool.submit(call) for _ in range(THREADS)]]
    finally:
        sys.setswitchinterval(interval)


def while_it_is_reached(meeting: Any, function: Callable[[], Any]) -> list[Any]:
    """Return the results of a thread that reaches the meeting, and of one that starts then.

    The first thread continues when the second has ended, or after half a second, because the second
    may have to wait for the first.
    """
    with ThreadPoolExecutor(2) as pool:
        futures: list[Future[Any]] = [pool.submit(function)]
        assert meeting.is_reached.wait(60)
        futures.append(pool.submit(function))
        futures[1].add_done_callback(lambda _: meeting.other_has_ended.set())
        return [future.result() for future in futures]


MEET = """
    import meeting
    if not meeting.is_reached.is_set():
        meeting.is_reached.set()
        meeting.other_has_ended.wait(0.5)
"""


def test_a_thread_sees_all_plugins_while_another_one_imports_them(
    install: Any, meeting: Any, tmp_path: Path
) -> None:
    install("first", MEET)
    install("second", "")
    manager = PluginManager(path=[str(tmp_path)])
    found = while_it_is_reached(meeting, lambda: manager.schedulers().names())
    assert [sorted(names) for names in found] == [["first", "second"]] * 2
    assert manager.problems == []


def test_a_thread_sees_all_records_while_another_one_collects_them(meeting: Any) -> None:
    manager = PluginManager(discover=False)

    @hookimpl
    def torchx_schedulers() -> Iterator[SchedulerPlugin]:
        yield SchedulerPlugin("first", "json:loads")
        if not meeting.is_reached.is_set():
            meeting.is_reached.set()
            meeting.other_has_ended.wait(0.5)
        yield SchedulerPlugin("second", "json:loads")

    manager.register(SimpleNamespace(torchx_schedulers=torchx_schedulers), "two")
    found = while_it_is_reached(meeting, lambda: manager.schedulers().names())
    assert [sorted(names) for names in found] == [["first", "second"]] * 2


def test_a_plugin_that_is_added_while_records_are_collected_is_not_lost() -> None:
    manager = PluginManager(discover=False)

    def plugin(name: str, then: Callable[[], object] = lambda: None) -> SimpleNamespace:
        @hookimpl
        def torchx_schedulers() -> Iterator[SchedulerPlugin]:
            yield SchedulerPlugin(name, "json:loads")
            then()

        return SimpleNamespace(torchx_schedulers=torchx_schedulers)

    late = plugin("late")
    manager.register(plugin("early", lambda: manager.register(late, "late")), "early")
    manager.schedulers()
    assert sorted(manager.schedulers().names()) == ["early", "late"]
    assert manager.problems == []


def test_a_plugin_that_asks_for_plugins_while_it_is_imported_is_not_lost(
    install: Any, tmp_path: Path
) -> None:
    body = "from torchx_specs.plugins.manager import get_manager\n"
    install("first", f"{body}SEEN = sorted(get_manager().schedulers().names())\n")
    install("second", "")
    try:
        set_manager(PluginManager(path=[str(tmp_path)]))
        import first  # type: ignore[import-not-found]

        assert first.SEEN == ["second"]
        assert sorted(get_manager().schedulers().names()) == ["first", "second"]
        assert get_manager().problems == []
    finally:
        set_manager(None)
        del sys.modules["first"], sys.modules["second"]


def test_many_threads_load_plugins_once(install: Any, tmp_path: Path, meeting: Any) -> None:
    install("first", "import time; time.sleep(0.01)")
    install("second", "")
    for _ in range(20):
        manager = PluginManager(path=[str(tmp_path)])
        found = together(lambda manager=manager: manager.schedulers().names())  # type: ignore[misc]
        assert {tuple(sorted(names)) for names in found} == {("first", "second")}
        assert manager.problems == []
        sys.modules.pop("first")


def test_a_process_has_one_manager() -> None:
    try:
        for _ in range(50):
            set_manager(None)
            assert len(set(map(id, together(get_manager)))) == 1
    finally:
        set_manager(None)


def test_once_calls_once() -> None:
    calls = []

    @once
    def function() -> object:
        calls.append(1)
        return object()

    assert len(set(together(function))) == 1
    assert len(calls) == 1
    function.cache_clear()
    function()
    assert len(calls) == 2
