"""Tests that the suite of distributions passes for a valid one, and fails for invalid ones."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from suite_runs import Case, Run, run_cases

GOOD = """
from torchx_specs import Resource
from torchx_specs.hookspecs import *

@hookimpl
def torchx_schedulers():
    yield SchedulerPlugin("good", "good_parts:create_scheduler", summary="A good one")

@hookimpl
def torchx_named_resources():
    yield ResourcePlugin("good", lambda: Resource(cpu=1, gpu=0, memMB=512))

@hookimpl
def torchx_components():
    yield ComponentPlugin("good", "good_parts")

@hookimpl
def torchx_trackers():
    yield TrackerPlugin("good", "good_parts:create_tracker")

@hookimpl
def torchx_commands():
    yield CommandPlugin("good", "good_parts:command", summary="Does good")

@hookimpl
def torchx_workspaces():
    yield WorkspacePlugin("good", "good_parts:GoodBuilder")

@hookimpl
def torchx_pruners():
    yield PrunerPlugin("good", "good_parts:unused")

@hookimpl
def torchx_event_handlers():
    yield EventHandlerPlugin("good", "logging:NullHandler")

@hookimpl
def torchx_log_sinks():
    yield LogSinkPlugin("good", "good_parts:GoodSink")

@hookimpl
def torchx_notifiers():
    yield NotifierPlugin("good", "good_parts:notifier")

@hookimpl
def torchx_supervisors():
    yield SupervisorPlugin("good", "good_parts:GoodSupervisor")
"""
PARTS = """
import yaml_stand_in as heavy
from torchx_specs import runopts
from torchx_specs.schedulers import Scheduler
from torchx_kit.workspace import WorkspaceBuilder

def unused(query):
    yield from ()

class GoodSink:
    def __init__(self, url):
        self.url = url

def notifier(config):
    return print

class GoodSupervisor:
    pass

class GoodScheduler(Scheduler):
    def _run_opts(self):
        opts = runopts()
        opts.add("queue", type_=str, help="where to wait")
        return opts

    def _submit_dryrun(self, app, cfg): ...
    def schedule(self, dryrun_info): ...
    def describe(self, app_id): ...
    def list(self, cfg=None): ...
    def _cancel_existing(self, app_id): ...

class Connects(GoodScheduler):
    def _run_opts(self):
        import socket
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1)
        except OSError:
            pass
        return super()._run_opts()

class WithoutHelp(GoodScheduler):
    def _run_opts(self):
        opts = runopts()
        opts.add("queue", type_=str, help="queue")
        return opts

class GoodBuilder(WorkspaceBuilder):
    def plan(self, role_image, workspace, cfg): ...
    def build(self, plan, cfg): ...

def create_scheduler(session_name, **kwargs):
    return GoodScheduler("good", session_name)

def create_connecting(session_name, **kwargs):
    return Connects("bad", session_name)

def create_without_help(session_name, **kwargs):
    return WithoutHelp("bad", session_name)

def create_strict(session_name):
    return GoodScheduler("bad", session_name)

def create_tracker(config): ...
def tracker_without_config(): ...
def command(): ...
"""


def scheduler(factory: str, summary: str = "one") -> str:
    return f"""
    from torchx_specs.hookspecs import *

    @hookimpl
    def torchx_schedulers():
        yield SchedulerPlugin("bad", {factory!r}, summary={summary!r})
    """


def records(hook: str, *lines: str) -> str:
    body = "\n        ".join(lines)
    return f"""
    from torchx_specs import Resource
    from torchx_specs.hookspecs import *

    @hookimpl
    def {hook}():
        {body}
    """


#: Invalid distributions by name: the code, and the test that must fail.
WRONG: dict[str, tuple[str, str]] = {
    "broken": ("raise ValueError('no licence')", "test_it_loads_and_its_hooks_work"),
    "empty": ("", "test_it_loads_and_its_hooks_work"),
    "rubbish": (
        records("torchx_schedulers", "yield 'rubbish'"),
        "test_it_loads_and_its_hooks_work",
    ),
    "heavy": (
        "import yaml_stand_in\n" + dedent(scheduler("good_parts:create_scheduler")),
        "test_listing_it_loads_nothing_heavy",
    ),
    "missing": (scheduler("good_parts:no_such"), "test_every_factory_can_be_loaded"),
    "strict": (scheduler("good_parts:create_strict"), "test_schedulers"),
    "connecting": (scheduler("good_parts:create_connecting"), "test_schedulers"),
    "helpless": (scheduler("good_parts:create_without_help"), "test_schedulers"),
    "silent": (
        scheduler("good_parts:create_scheduler", ""),
        "test_commands_and_schedulers_are_summed_up",
    ),
    "nothing": (
        records("torchx_named_resources", "yield ResourcePlugin('x', lambda: 3)"),
        "test_named_resources",
    ),
    "handler": (
        records("torchx_event_handlers", "yield EventHandlerPlugin('x', dict)"),
        "test_event_handlers",
    ),
    "pruner": (
        records("torchx_pruners", "yield PrunerPlugin('x', lambda: ())"),
        "test_factories_take_the_arguments_of_their_hooks",
    ),
    "sink": (
        records("torchx_log_sinks", "yield LogSinkPlugin('x', lambda: ())"),
        "test_factories_take_the_arguments_of_their_hooks",
    ),
    "notifier": (
        records("torchx_notifiers", "yield NotifierPlugin('x', lambda: ())"),
        "test_factories_take_the_arguments_of_their_hooks",
    ),
    "supervisor": (
        records("torchx_supervisors", "yield SupervisorPlugin('x', lambda config: ())"),
        "test_factories_take_the_arguments_of_their_hooks",
    ),
    "builder": (
        records("torchx_workspaces", "yield WorkspacePlugin('x', dict)"),
        "test_workspace_builders",
    ),
    "tracker": (
        records("torchx_trackers", "yield TrackerPlugin('x', 'good_parts:tracker_without_config')"),
        "test_factories_take_the_arguments_of_their_hooks",
    ),
    "component": (
        records("torchx_components", "yield ComponentPlugin('x', 'no_such_module')"),
        "test_component_modules_can_be_imported",
    ),
    "twice": (
        records(
            "torchx_named_resources",
            "yield ResourcePlugin('x', 'a:b')",
            "yield ResourcePlugin('x', 'c:d')",
        ),
        "test_it_loads_and_its_hooks_work",
    ),
}


def install(site: Path, name: str, code: str) -> None:
    (site / f"plugin_{name}.py").write_text(dedent(code))
    folder = site / f"dist_{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Name: dist_{name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[torchx]\n{name} = plugin_{name}\n")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run the suite on a valid distribution, on each invalid one, and on a missing one."""
    site = tmp_path_factory.mktemp("site")
    (site / "yaml_stand_in.py").touch()
    (site / "good_parts.py").write_text(PARTS)
    install(site, "good", GOOD)
    cases = [_case("good", "")]
    for name, (code, test) in WRONG.items():
        install(site, name, code)
        cases.append(_case(name, test))
    cases.append(Case("TestAbsent", "PluginConformance", "distribution = 'absent'", "registered"))
    imports = (
        f"import sys\nsys.path.insert(0, {str(site)!r})\n"
        "from torchx_testing.plugin_suite import HEAVY, PluginConformance"
    )
    return run_cases(tmp_path_factory.mktemp("run"), imports, cases)


def _case(name: str, test: str) -> Case:
    body = f"distribution = 'dist-{name}'\nheavy = (*HEAVY, 'yaml_stand_in')"
    return Case(f"TestDist{name.capitalize()}", "PluginConformance", body, test)


def test_a_good_distribution_passes(runs: Run) -> None:
    mine = {t: kinds for (suite, t), kinds in runs.outcomes.items() if suite == "TestDistGood"}
    assert len(mine) == 12
    assert set().union(*mine.values()) == {"passed"}, runs.text


@pytest.mark.parametrize(("name", "test"), [(name, test) for name, (_, test) in WRONG.items()])
def test_a_bad_one_fails(runs: Run, name: str, test: str) -> None:
    assert runs.outcomes[f"TestDist{name.capitalize()}", test] == {"failure"}, runs.text


def test_one_that_is_not_installed(runs: Run) -> None:
    assert runs.outcomes["TestAbsent", "test_it_is_registered"] == {"failure"}
