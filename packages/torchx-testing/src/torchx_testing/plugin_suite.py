"""The conformance suite of plugin distributions.

::

    class TestAcmePlugin(PluginConformance):
        distribution = "acme-torchx"

The distribution must be installed in the environment of the tests.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from torchx_kit.hosts.api import Host
from torchx_kit.workspace import WorkspaceBuilder
from torchx_specs import Resource
from torchx_specs.hookspecs import (
    CheckPlugin,
    CommandPlugin,
    ComponentPlugin,
    EventHandlerPlugin,
    HostPlugin,
    LogSinkPlugin,
    NotifierPlugin,
    PrunerPlugin,
    ResourcePlugin,
    SchedulerPlugin,
    SupervisorPlugin,
    TrackerPlugin,
    WorkspacePlugin,
)
from torchx_specs.plugins.entry_points import entry_points, normalize
from torchx_specs.plugins.manager import PluginManager
from torchx_specs.plugins.records import ALL
from torchx_specs.schedulers import Scheduler
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED
from torchx_specs.workspace.pruning import PruneQuery
from torchx_testing.declared import Suite
from torchx_testing.offline import offline

#: The features that ``unsupported`` may name in the suite of distributions.
FEATURES = frozenset({"factories_offline"})

#: Modules that take long to import: the listing of plugins must not import these.
HEAVY = (
    "asyncio",
    "boto3",
    "botocore",
    "docker",
    "fsspec",
    "kubernetes",
    "mlflow",
    "multiprocessing",
    "numpy",
    "pandas",
    "requests",
    "rich",
    "subprocess",
    "torch",
    "urllib.request",
    "yaml",
)

_LISTING = """
import json, sys
from torchx_specs.plugins.manager import get_manager
manager = get_manager()
before = set(sys.modules)
for hook in ("schedulers", "named_resources", "components", "trackers", "commands", "workspaces",
             "pruners", "checks", "event_handlers", "log_sinks", "notifiers"):
    list(getattr(manager, hook)())
print(json.dumps(sorted(set(sys.modules) - before)))
"""


#: The arguments with which the factories of a hook are called.
_ARGUMENTS: dict[type, tuple[object, ...]] = {
    LogSinkPlugin: ("sink://folder",),
    NotifierPlugin: ({},),
    PrunerPlugin: (PruneQuery(),),
    CheckPlugin: ({},),
    SupervisorPlugin: (),
    TrackerPlugin: ("config",),
}


class PluginConformance(Suite):
    """The conformance tests of a plugin distribution. A subclass names the distribution.

    Attributes:
        distribution: Name of the distribution.
        heavy: Modules that listing plugins must not import.
        unsupported: The :data:`FEATURES` that the plugin lacks, with the reasons.
    """

    kind: ClassVar[str] = "distribution"
    features: ClassVar[frozenset[str]] = FEATURES
    distribution: ClassVar[str] = ""
    heavy: ClassVar[tuple[str, ...]] = HEAVY

    @classmethod
    def subject(cls) -> str:
        """Return the name of the distribution."""
        return cls.distribution

    @pytest.fixture
    def manager(self) -> PluginManager:
        """Return a plugin manager that loads only the plugins of this distribution."""
        return PluginManager(disabled=self._others())

    def _others(self) -> list[str]:
        mine = normalize(self.distribution)
        found = {ep.distribution for ep in entry_points("torchx")}
        return sorted(name for name in found if normalize(name) != mine)

    def _records(self, manager: PluginManager, kind: type) -> list[Any]:
        return [record for record in self._all(manager) if type(record) is kind]

    def _all(self, manager: PluginManager) -> Iterator[Any]:
        for catalog in (
            manager.schedulers(),
            manager.named_resources(),
            manager.trackers(),
            manager.commands(),
            manager.workspaces(),
            manager.pruners(),
            manager.checks(),
            manager.event_handlers(),
            manager.supervisors(),
            manager.hosts(),
            manager.log_sinks(),
            manager.notifiers(),
        ):
            assert not catalog.conflicts, f"one name twice: {sorted(catalog.conflicts)}"
            yield from (catalog[name] for name in catalog)
        yield from manager.components()

    # The following tests load the plugins.

    def test_it_is_registered(self) -> None:
        found = [
            ep
            for ep in entry_points("torchx")
            if normalize(ep.distribution) == normalize(self.distribution)
        ]
        assert found, f"{self.distribution} has no entry point in the group `torchx`"

    def test_it_loads_and_its_hooks_work(self, manager: PluginManager) -> None:
        records = list(self._all(manager))
        assert [str(problem) for problem in manager.problems] == []
        assert records, f"{self.distribution} gives nothing"
        wrong = {record.name for record in records if not record.origin.distribution}
        assert not wrong, f"of unknown origin: {wrong}"

    def test_listing_it_loads_nothing_heavy(self) -> None:
        disabled = ",".join(self._others())
        done = subprocess.run(
            [sys.executable, "-c", _LISTING],
            env={
                **os.environ,
                ENV_TORCHX_PLUGINS_DISABLED: disabled,
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        loaded = set(json.loads(done.stdout.splitlines()[-1]))
        heavy = sorted(loaded & set(self.heavy))
        assert not heavy, f"listing loads {heavy}: name factories as 'module:attribute'"

    # The following tests check the records of each hook.

    def test_every_factory_can_be_loaded(self, manager: PluginManager) -> None:
        for record in self._all(manager):
            if not isinstance(record, ComponentPlugin):
                assert callable(record.load()), f"{record.kind} {record.name} cannot be called"

    def test_schedulers(self, manager: PluginManager) -> None:
        for record in self._records(manager, SchedulerPlugin):
            factory = record.load()
            parameters = inspect.signature(factory).parameters.values()
            assert any(p.kind is p.VAR_KEYWORD for p in parameters), (
                f"the factory of {record.name} must take any keyword arguments"
            )
            if self.lacks("factories_offline"):
                continue
            with offline() as watch:
                scheduler = factory("conformance", no_such_parameter="x")
                assert isinstance(scheduler, Scheduler)
                opts = scheduler.run_opts()
                assert repr(opts)
            watch.check()
            scheduler.close()
            unexplained = [name for name, opt in opts if not opt.help or opt.help == name]
            assert not unexplained, f"options of {record.name} without help: {unexplained}"

    def test_named_resources(self, manager: PluginManager) -> None:
        for record in self._records(manager, ResourcePlugin):
            factory = record.load()
            made = factory()
            assert isinstance(made, Resource)
            assert made.cpu >= 0
            assert made.gpu >= 0
            assert made.memMB > 0
            assert factory() == made, f"{record.name} is not always the same"

    def test_workspace_builders(self, manager: PluginManager) -> None:
        for record in self._records(manager, WorkspacePlugin):
            with offline() as watch:
                builder = record.load()()
                assert isinstance(builder, WorkspaceBuilder)
                assert repr(builder.opts())
            watch.check()

    def test_event_handlers(self, manager: PluginManager) -> None:
        for record in self._records(manager, EventHandlerPlugin):
            assert isinstance(record.load()(), logging.Handler)

    def test_factories_take_the_arguments_of_their_hooks(self, manager: PluginManager) -> None:
        with offline() as watch:
            for kind, arguments in _ARGUMENTS.items():
                for record in self._records(manager, kind):
                    if record.name != ALL:
                        inspect.signature(record.load()).bind(*arguments)
        watch.check()

    def test_hosts_take_a_name_and_connect_to_nothing(self, manager: PluginManager) -> None:
        for record in self._records(manager, HostPlugin):
            with offline() as watch:
                assert isinstance(record.load()("login1"), Host)
            watch.check()

    def test_commands_and_schedulers_are_summed_up(self, manager: PluginManager) -> None:
        for kind in (CommandPlugin, SchedulerPlugin):
            for record in self._records(manager, kind):
                summary = record.summary_text()
                assert summary, f"{record.kind} {record.name} has no summary"
                assert "\n" not in summary

    def test_component_modules_can_be_imported(self, manager: PluginManager) -> None:
        for record in manager.components():
            importlib.import_module(record.module)
