"""Tests of the plugin manager, with distributions that each test installs."""

from __future__ import annotations

import importlib
import inspect
import itertools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pluggy
import pytest

from torchx_specs.errors import PluginConflictError, PluginError
from torchx_specs.hookspecs import ResourcePlugin, SchedulerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, get_manager, set_manager
from torchx_specs.plugins.records import Origin, error_text

HEAD = "from torchx_specs.hookspecs import *\n"
numbers = itertools.count()


class Site:
    """A folder of installed distributions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(self, name: str, code: str | None, version: str = "1.0", attr: str = "") -> str:
        """Install a plugin that is one module, and return the module's name."""
        module = f"plugin_of_test_{next(numbers)}"
        if code is not None:
            (self.path / f"{module}.py").write_text(HEAD + dedent(code))
        folder = self.path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text(f"[torchx]\nmain = {module}{attr}\n")
        return module

    def manager(self, **options: Any) -> PluginManager:
        return PluginManager(path=[str(self.path)], **options)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TORCHX_PLUGINS_DISABLED", raising=False)
    yield Site(tmp_path)
    for name in [name for name in sys.modules if name.startswith("plugin_of_test_")]:
        del sys.modules[name]


def scheduler(name: str, factory: str = "json:loads", tryfirst: bool = False) -> str:
    mark = "@hookimpl(tryfirst=True)" if tryfirst else "@hookimpl"
    return dedent(
        f"""
        {mark}
        def torchx_schedulers():
            yield SchedulerPlugin({name!r}, {factory!r}, summary="of {factory}")
        """
    )


class TestAPluginThatWorks:
    def test_records_know_where_they_come_from(self, site: Site) -> None:
        site.install("Acme_Torchx", scheduler("acme"), "2.1")
        manager = site.manager()
        record = manager.schedulers()["acme"]
        assert record.origin == Origin("Acme_Torchx", "2.1", "main")
        assert str(record.origin) == "Acme_Torchx 2.1"
        assert record.summary_text() == "of json:loads"
        assert manager.problems == []

    def test_listing_imports_no_factory(self, site: Site) -> None:
        target = site.install("other", "LOADED = True")
        site.install("acme", scheduler("acme", f"{target}:LOADED.__class__"))
        manager = PluginManager(path=[str(site.path)], disabled=["other"])
        assert list(manager.schedulers()) == ["acme"]
        assert target not in sys.modules
        assert manager.schedulers()["acme"].load() is bool
        assert target in sys.modules

    def test_a_factory_that_cannot_be_loaded(self, site: Site) -> None:
        site.install("acme", scheduler("a", "no_such_mod:f"))
        site.install("beta", scheduler("b", "json:no_such_attr"))
        manager = site.manager()
        with pytest.raises(
            PluginError,
            match=r"scheduler 'b' of beta 1\.0 cannot be loaded from 'json:no_such_attr'",
        ):
            manager.schedulers()["b"].load()

    def test_missing_distribution_of_torchx_has_a_command_that_installs_it(self) -> None:
        missing = ModuleNotFoundError("No module named 'torchx_kit'", name="torchx_kit")
        text = "ModuleNotFoundError: No module named 'torchx_kit'"
        assert error_text(missing) == f"{text}; run: pip install torchx-kit"
        assert error_text(ModuleNotFoundError(str(missing), name="torchx_kit.no")) == text
        assert error_text(ModuleNotFoundError("no", name="acme")) == "ModuleNotFoundError: no"

    def test_an_object_in_a_module(self, site: Site) -> None:
        code = """
            class Outer:
                class plugin:
                    @staticmethod
                    @hookimpl
                    def torchx_schedulers():
                        return [SchedulerPlugin("nested", print)]
        """
        site.install("acme", code, attr=":Outer.plugin")
        assert list(site.manager().schedulers()) == ["nested"]

    def test_registrations(self, site: Site) -> None:
        module = site.install("acme", "")
        manager = site.manager()
        manager.schedulers()
        (registration,) = manager.registrations
        assert (registration.target, registration.enabled) == (module, True)

    def test_none_is_nothing(self, site: Site) -> None:
        site.install("acme", "@hookimpl\ndef torchx_schedulers():\n    return None")
        manager = site.manager()
        assert len(manager.schedulers()) == 0
        assert manager.problems == []

    def test_every_hook_has_its_method(self, site: Site) -> None:
        code = """
            @hookimpl
            def torchx_named_resources():
                yield ResourcePlugin("r", dict)

            @hookimpl
            def torchx_components():
                yield ComponentPlugin("g", "acme.one")
                yield ComponentPlugin("g", "acme.two")
                yield ComponentPlugin("g", "acme.two")

            @hookimpl
            def torchx_trackers():
                yield TrackerPlugin("t", dict)

            @hookimpl
            def torchx_commands():
                yield CommandPlugin("c", dict)

            @hookimpl
            def torchx_workspaces():
                yield WorkspacePlugin("w", dict)

            @hookimpl
            def torchx_event_handlers():
                yield EventHandlerPlugin("e", dict)
        """
        site.install("acme", code)
        manager = site.manager()
        assert list(manager.named_resources()) == ["r"]
        assert [c.module for c in manager.components()] == ["acme.one", "acme.two"]
        assert list(manager.trackers()) == ["t"]
        assert list(manager.commands()) == ["c"]
        assert list(manager.workspaces()) == ["w"]
        assert list(manager.event_handlers()) == ["e"]
        assert manager.problems == []


class TestOneThatDoesNot:
    """Tests that an invalid plugin is reported by name and does not affect other plugins."""

    @pytest.mark.parametrize(
        ("code", "stage", "said"),
        [
            ("raise RuntimeError('no\\nlicence')", "import", "RuntimeError: no licence"),
            ("import no_such_module_at_all", "import", "ModuleNotFoundError: No module named"),
            ("def f(:", "import", "SyntaxError"),
            ("raise SystemExit(3)", "import", "SystemExit: 3"),
            ("raise BaseException('panic')", "import", "BaseException: panic"),
            (None, "import", "ModuleNotFoundError"),
            (
                "@hookimpl\ndef torchx_schedulers():\n    raise ValueError('no cluster')",
                "hook",
                "torchx_schedulers: ValueError: no cluster",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    import sys; sys.exit('bye')",
                "hook",
                "torchx_schedulers: SystemExit: bye",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    raise BaseException('panic')",
                "hook",
                "torchx_schedulers: BaseException: panic",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    return 3",
                "hook",
                "torchx_schedulers: TypeError: 'int' object is not iterable",
            ),
            (
                "@hookimpl\ndef torchx_schedulers(config):\n    return ()",
                "hook",
                "config",
            ),
            (
                "@hookimpl\ndef torchx_scheduler():\n    return ()",
                "hook",
                "there is no hook torchx_scheduler; did you mean 'torchx_schedulers'?",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield 'rubbish'",
                "record",
                "torchx_schedulers must yield SchedulerPlugin, got 'rubbish'",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield ResourcePlugin('x', 'a:b')",
                "record",
                "must yield SchedulerPlugin, got ResourcePlugin",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield SchedulerPlugin('', 'a:b')",
                "record",
                "SchedulerPlugin needs a name, got ''",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield SchedulerPlugin(3, 'a:b')",
                "record",
                "SchedulerPlugin needs a name, got 3",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield SchedulerPlugin('x', 'no colon')",
                "record",
                "names its factory as 'no colon', which is not 'module:attribute'",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield SchedulerPlugin('x', 42)",
                "record",
                "SchedulerPlugin 'x' has a factory that cannot be called: 42",
            ),
            (
                "@hookimpl\ndef torchx_schedulers():\n    yield SchedulerPlugin",
                "record",
                "must yield SchedulerPlugin, got <class",
            ),
        ],
    )
    def test_it_is_told_of(
        self, site: Site, caplog: pytest.LogCaptureFixture, code: str | None, stage: str, said: str
    ) -> None:
        site.install("broken", code, "0.3")
        site.install("good", scheduler("good"))
        manager = site.manager()
        with caplog.at_level(logging.WARNING):
            assert "good" in manager.schedulers()
            manager.schedulers()
            manager.trackers()
        (problem,) = manager.problems
        assert problem.stage == stage
        assert problem.origin == Origin("broken", "0.3", "main")
        assert said in problem.message
        assert "\n" not in str(problem)
        assert [r.getMessage() for r in caplog.records] == [str(problem)]
        assert str(problem).startswith("plugin broken 0.3 (main) ")

    def test_what_it_gave_before_it_failed_counts(self, site: Site) -> None:
        code = """
            @hookimpl
            def torchx_schedulers():
                yield SchedulerPlugin("first", "a:b")
                yield "rubbish"
                yield SchedulerPlugin("second", "a:b")
                raise ValueError("no more")
        """
        site.install("broken", code)
        manager = site.manager()
        assert list(manager.schedulers()) == ["first", "second"]
        assert [p.stage for p in manager.problems] == ["record", "hook"]

    def test_its_other_hooks_work(self, site: Site) -> None:
        code = """
            @hookimpl
            def torchx_schedulers():
                raise ValueError("no")

            @hookimpl
            def torchx_trackers():
                yield TrackerPlugin("t", "a:b")
        """
        site.install("broken", code)
        manager = site.manager()
        assert len(manager.schedulers()) == 0
        assert list(manager.trackers()) == ["t"]

    def test_a_plugin_with_an_impossible_hook_takes_no_part(self, site: Site) -> None:
        code = scheduler("half") + "@hookimpl\ndef torchx_trackers(config):\n    return ()\n"
        site.install("broken", code)
        manager = site.manager()
        assert len(manager.schedulers()) == 0
        assert [p.stage for p in manager.problems] == ["hook"]

    def test_ctrl_c_is_not_its_business(self, site: Site) -> None:
        site.install("slow", "raise KeyboardInterrupt")
        with pytest.raises(KeyboardInterrupt):
            site.manager().schedulers()

    def test_a_missing_attribute(self, site: Site) -> None:
        site.install("broken", "", attr=":nothing")
        manager = site.manager()
        manager.schedulers()
        (problem,) = manager.problems
        assert "AttributeError" in problem.message


class TestBlocking:
    @pytest.mark.parametrize("blocked", ["acme-torchx", "Acme_Torchx", "x, ACME.torchx ,", "main"])
    def test_by_the_environment(
        self, site: Site, monkeypatch: pytest.MonkeyPatch, blocked: str
    ) -> None:
        module = site.install("Acme_Torchx", scheduler("acme"))
        monkeypatch.setenv("TORCHX_PLUGINS_DISABLED", blocked)
        manager = site.manager()
        assert len(manager.schedulers()) == 0
        assert [r.enabled for r in manager.registrations] == [False]
        assert module not in sys.modules

    def test_by_the_caller(self, site: Site) -> None:
        site.install("acme", scheduler("acme"))
        site.install("beta", scheduler("beta"))
        assert list(site.manager(disabled=["beta"]).schedulers()) == ["acme"]

    def test_a_broken_one_that_is_blocked_is_no_problem(self, site: Site) -> None:
        site.install("broken", "raise ValueError")
        manager = site.manager(disabled=["broken"])
        manager.schedulers()
        assert manager.problems == []

    def test_without_installed_plugins(self, site: Site) -> None:
        site.install("acme", scheduler("acme"))
        assert len(site.manager(discover=False).schedulers()) == 0


class TestTwoWithOneName:
    def test_using_the_name_is_an_error(self, site: Site) -> None:
        site.install("acme", scheduler("same", "a:b") + scheduler("same", "a:b"), "1.0")
        site.install("beta", scheduler("same", "c:d"), "2.0")
        site.install("gamma", scheduler("other"))
        catalog = site.manager().schedulers()
        with pytest.raises(PluginConflictError) as raised:
            catalog.find("same")
        assert str(raised.value) == (
            "scheduler 'same' is given by acme 1.0 and beta 2.0: uninstall one, or disable one with"
            " TORCHX_PLUGINS_DISABLED=acme:same, or mark the wanted one @hookimpl(tryfirst=True)"
        )
        assert catalog["other"].name == "other"
        assert [str(r.origin) for r in catalog.conflicts["same"]] == ["acme 1.0", "beta 2.0"]

    def test_a_conflict_does_not_break_the_mapping(self, site: Site) -> None:
        site.install("acme", scheduler("same", "a:b"))
        site.install("beta", scheduler("same", "c:d"))
        site.install("gamma", scheduler("other"))
        catalog = site.manager().schedulers()
        assert list(catalog) == ["other"]
        assert len(catalog) == 1
        assert "same" not in catalog
        assert catalog.get("same") is None
        assert [record.name for record in catalog.values()] == ["other"]
        assert list(dict(catalog)) == ["other"]
        assert catalog.names() == ["same", "other"]
        with pytest.raises(KeyError, match=r"is given by acme 1\.0 and beta 1\.0"):
            catalog["same"]

    def test_find_returns_none_for_an_unknown_name(self, site: Site) -> None:
        assert site.manager().schedulers().find("nope") is None

    def test_blocking_one_decides(self, site: Site) -> None:
        site.install("acme", scheduler("same", "a:b"))
        site.install("beta", scheduler("same", "c:d"))
        assert site.manager(disabled=["acme"]).schedulers()["same"].factory == "c:d"

    @pytest.mark.parametrize("disabled", ["acme:same", "ACME:same", "beta"])
    def test_blocking_one_record_keeps_the_others_of_its_plugin(
        self, site: Site, disabled: str
    ) -> None:
        code = """
            @hookimpl
            def torchx_schedulers():
                yield SchedulerPlugin("same", "a:b")
                yield SchedulerPlugin("other", "a:b")
        """
        site.install("acme", code)
        site.install("beta", scheduler("same", "c:d"))
        catalog = site.manager(disabled=[disabled]).schedulers()
        assert catalog["same"].factory == ("a:b" if disabled == "beta" else "c:d")
        assert catalog["other"].factory == "a:b"

    @pytest.mark.parametrize("override", ["acme", "zeta"])
    def test_a_deliberate_override(self, site: Site, override: str) -> None:
        site.install("beta", scheduler("same", "plain:one"))
        site.install("gamma", scheduler("same", "plain:two"))
        site.install(override, scheduler("same", "wanted:one", tryfirst=True))
        catalog = site.manager().schedulers()
        assert catalog["same"].factory == "wanted:one"
        assert catalog.conflicts == {}
        overridden = [str(r.origin) for r in catalog.overridden["same"]]
        assert overridden == ["beta 1.0", "gamma 1.0"]

    def test_two_deliberate_ones(self, site: Site) -> None:
        site.install("acme", scheduler("same", "a:b", tryfirst=True))
        site.install("beta", scheduler("same", "c:d", tryfirst=True))
        site.install("gamma", scheduler("same", "e:f"))
        with pytest.raises(PluginError, match=r"given by acme 1\.0 and beta 1\.0: "):
            site.manager().schedulers()["same"]

    def test_equal_registrations_count_once(self, site: Site) -> None:
        site.install("acme", scheduler("same", "a:b"))
        site.install("beta", scheduler("same", "a:b"))
        catalog = site.manager().schedulers()
        assert catalog["same"].factory == "a:b"
        assert (catalog.conflicts, catalog.overridden) == ({}, {})

    def test_one_plugin_that_gives_a_name_twice(self, site: Site) -> None:
        code = """
            @hookimpl
            def torchx_schedulers():
                yield SchedulerPlugin("same", "a:b")
                yield SchedulerPlugin("same", "c:d")
        """
        site.install("acme", code)
        with pytest.raises(PluginError, match=r"given by acme 1\.0 and acme 1\.0"):
            site.manager().schedulers()["same"]

    def test_an_unknown_name_is_a_key_error(self, site: Site) -> None:
        with pytest.raises(KeyError):
            site.manager().schedulers()["nope"]


class TestOptionsOnlySchedulers:
    CODE = """
        from torchx_specs.hookspecs import OptionsOnlySchedulerPlugin

        @hookimpl
        def torchx_schedulers():
            yield OptionsOnlySchedulerPlugin("acme", "a:b")
            yield OptionsOnlySchedulerPlugin("planner", "a:b")
    """

    def test_they_can_be_configured_and_not_run_on(self, site: Site) -> None:
        site.install("older", self.CODE)
        manager = site.manager()
        assert list(manager.schedulers()) == []
        assert list(manager.configurable_schedulers()) == ["acme", "planner"]

    def test_a_runnable_scheduler_of_the_same_name_wins(self, site: Site) -> None:
        site.install("older", self.CODE)
        site.install("zeta", scheduler("acme", "c:d"))
        manager = site.manager()
        assert list(manager.schedulers()) == ["acme"]
        catalog = manager.configurable_schedulers()
        assert catalog["acme"].factory == "c:d"
        assert catalog.conflicts == {}


class TestPluginsThatAreNotInstalled:
    CODE = """
        @hookimpl(trylast=True)
        def torchx_schedulers():
            yield SchedulerPlugin("acme", "", install="pip install acme-torchx")
    """

    def test_a_record_with_an_install_command_is_not_listed(self, site: Site) -> None:
        site.install("kit", self.CODE)
        catalog = site.manager().schedulers()
        assert catalog.names() == []
        assert catalog.find("acme") is None
        assert catalog.installable == {"acme": "pip install acme-torchx"}
        assert catalog.install_hint("acme") == "; run: pip install acme-torchx"
        assert catalog.install_hint("other") == ""

    def test_it_does_not_conflict_with_the_installed_plugin(self, site: Site) -> None:
        site.install("kit", self.CODE)
        site.install("acme-torchx", scheduler("acme", "a:b"))
        manager = site.manager()
        assert manager.schedulers()["acme"].factory == "a:b"
        assert manager.problems == []


class TestMarker:
    def test_an_unknown_option_is_an_error(self) -> None:
        with pytest.raises(TypeError, match="tryfrist"):
            hookimpl(tryfrist=True)  # type: ignore[call-overload]


class TestOrder:
    def test_by_distribution_whatever_the_order_of_installing(self, site: Site) -> None:
        for name in ("gamma", "Alpha", "beta"):
            site.install(name, scheduler(name.lower()))
        assert list(site.manager().schedulers()) == ["alpha", "beta", "gamma"]

    def test_deliberate_ones_come_first(self, site: Site) -> None:
        site.install("alpha", scheduler("alpha"))
        site.install("beta", scheduler("beta", tryfirst=True))
        assert list(site.manager().schedulers()) == ["beta", "alpha"]


class Plugin:
    """A plugin that a test registers itself."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.calls = 0

    @hookimpl
    def torchx_schedulers(self) -> Iterator[SchedulerPlugin]:
        self.calls += 1
        for name in self.names:
            yield SchedulerPlugin(name, print)


class TestByHand:
    def test_beside_installed_ones(self, site: Site) -> None:
        site.install("acme", scheduler("acme"))
        manager = site.manager()
        assert list(manager.schedulers()) == ["acme"]
        manager.register(Plugin("mine"), "hand")
        assert sorted(manager.schedulers()) == ["acme", "mine"]
        assert str(manager.schedulers()["mine"].origin) == "hand"

    def test_with_an_origin(self) -> None:
        manager = PluginManager(discover=False)
        manager.register(Plugin("mine"), "hand", Origin("dist", "1.0"))
        assert str(manager.schedulers()["mine"].origin) == "dist 1.0"

    def test_a_record_s_own_origin_stays(self) -> None:
        class Bridge:
            @hookimpl
            def torchx_named_resources(self) -> Iterator[ResourcePlugin]:
                yield ResourcePlugin("r", dict, origin=Origin("found", "3"))

        manager = PluginManager(discover=False)
        manager.register(Bridge(), "bridge")
        assert str(manager.named_resources()["r"].origin) == "found 3"

    def test_one_name_twice(self) -> None:
        manager = PluginManager(discover=False)
        manager.register(Plugin("a"), "hand")
        manager.register(Plugin("b"), "hand")
        assert list(manager.schedulers()) == ["a"]
        assert [p.stage for p in manager.problems] == ["hook"]

    def test_each_hook_is_asked_once(self) -> None:
        manager = PluginManager(discover=False)
        plugin = Plugin("a")
        manager.register(plugin, "hand")
        for _ in range(3):
            manager.schedulers()
        assert plugin.calls == 1

    def test_many_managers(self) -> None:
        one, two = PluginManager(discover=False), PluginManager(discover=False)
        one.register(Plugin("a"), "hand")
        two.register(Plugin("b"), "hand")
        assert (list(one.schedulers()), list(two.schedulers())) == (["a"], ["b"])


def test_the_manager_of_the_process() -> None:
    mine = PluginManager(discover=False)
    set_manager(mine)
    try:
        assert get_manager() is mine
        set_manager(None)
        assert get_manager() is not mine
        assert get_manager() is get_manager()
    finally:
        set_manager(None)


def test_every_kind_of_function_in_a_module_can_be_a_hook(site: Site) -> None:
    code = """
    class Provider:
        @hookimpl
        def torchx_schedulers(self):
            yield SchedulerPlugin("bound", "json:loads")

    torchx_schedulers = Provider().torchx_schedulers

    @hookimpl
    @staticmethod
    def torchx_trackers():
        yield TrackerPlugin("static", "json:loads")

    @hookimpl(specname="torchx_commands")
    def other_name():
        yield CommandPlugin("named", "json:loads")
    """
    site.install("acme", code)
    manager = site.manager()
    assert list(manager.schedulers()) == ["bound"]
    assert list(manager.trackers()) == ["static"]
    assert list(manager.commands()) == ["named"]
    assert manager.problems == []


def test_the_search_for_hooks_examines_only_functions_of_a_module(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(site.install("acme", scheduler("acme")))
    examine = pluggy.PluginManager.parse_hookimpl_opts
    examined: set[str] = set()

    def noted(manager: pluggy.PluginManager, plugin: object, name: str) -> Any:
        examined.add(name)
        return examine(manager, plugin, name)

    monkeypatch.setattr(pluggy.PluginManager, "parse_hookimpl_opts", noted)
    manager = PluginManager(path=[])
    manager.register(module, "acme")
    assert list(manager.schedulers()) == ["acme"]
    assert examined == {name for name, found in vars(module).items() if inspect.isfunction(found)}
