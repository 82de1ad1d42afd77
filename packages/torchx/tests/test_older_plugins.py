"""Tests that our hooks yield the plugins for upstream's releases."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torchx_specs.errors import PluginError
from torchx_specs.plugins.manager import get_manager

Install = Callable[..., Path]

SCHEDULER = """
from torchx.schedulers.api import Scheduler

class Acme(Scheduler):
    def __init__(self, session_name, **kwargs):
        super().__init__("acme", session_name)
        self.kwargs = kwargs
    def _submit_dryrun(self, app, cfg): ...
    def schedule(self, info): ...
    def describe(self, app_id): ...
    def list(self, cfg=None): return []
    def _cancel_existing(self, app_id): ...

def create_scheduler(session_name, **kwargs):
    return Acme(session_name, **kwargs)

def strict(session_name, foo="default"):
    return Acme(session_name, foo=foo)
"""


def test_a_scheduler_gets_torchx_variables_as_keywords(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        "acme-torchx",
        {"torchx.schedulers": ["acme = acme_sched:create_scheduler"]},
        {"acme_sched.py": SCHEDULER},
    )
    monkeypatch.setenv("TORCHX_FOO", "7")
    record = get_manager().schedulers()["acme"]
    assert str(record.origin) == "acme_torchx 1.2"
    scheduler = record.load()("session", bar=2)
    assert scheduler.kwargs["foo"] == "7"
    assert scheduler.kwargs["bar"] == 2
    assert record.load()("session", foo=1).kwargs["foo"] == 1


def test_a_scheduler_with_a_strict_signature_gets_only_its_keywords(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        "acme-torchx",
        {"torchx.schedulers": ["s = acme_sched:strict"]},
        {"acme_sched.py": SCHEDULER},
    )
    monkeypatch.setenv("TORCHX_FOO", "7")
    assert get_manager().schedulers()["s"].load()("x", other=1).kwargs == {"foo": "7"}


OWN_METHODS = """
class Named(Acme):
    def wait(self, seconds):  # another signature than Scheduler.wait
        return "waited"
    def lives_in_client(self):
        return True

def create_named(session_name, **kwargs):
    return Named(session_name)
"""


def test_a_method_with_the_name_of_an_optional_one_is_no_feature(install: Install) -> None:
    install(
        "acme-torchx",
        {"torchx.schedulers": ["acme = acme_sched:create_named"]},
        {"acme_sched.py": SCHEDULER + OWN_METHODS},
    )
    scheduler = get_manager().schedulers()["acme"].load()("session")
    assert (scheduler.features.watch, scheduler.features.client_jobs) == (False, False)
    assert scheduler.wait(1) == "waited"


def test_a_plugin_scheduler_does_not_hide_ours(install: Install) -> None:
    before = set(get_manager().schedulers())
    install("acme-torchx", {"torchx.schedulers": ["acme = acme_sched:create_scheduler"]})
    from torchx.schedulers import get_scheduler_factories

    assert set(get_manager().schedulers()) == before | {"acme"}
    factories = get_scheduler_factories()
    assert next(iter(factories)) == "acme"
    assert set(get_scheduler_factories(skip_defaults=True)) >= {"acme"}
    assert "local_cwd" not in get_scheduler_factories(skip_defaults=True)


def test_an_orchestrator_scheduler_can_be_configured_but_not_run_on(
    install: Install, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The results, except the error's class, were recorded from torchx-nightly 2026.10.26.
    source = SCHEDULER.replace(
        "    def _submit_dryrun",
        "    def _run_opts(self):\n"
        "        from torchx.specs import runopts\n"
        "        opts = runopts()\n"
        "        opts.add('queue', type_=str, default='d', help='which')\n"
        "        return opts\n"
        "    def _submit_dryrun",
    )
    install(
        "acme-torchx",
        {"torchx.schedulers.orchestrator": ["orch = acme_sched:create_scheduler"]},
        {"acme_sched.py": source},
    )
    from torchx.runner import get_runner
    from torchx.runner.config import apply, dump, load
    from torchx.specs import AppDef, Resource, Role, UnknownSchedulerException

    config = tmp_path / ".torchxconfig"
    config.write_text("[orch]\nqueue = mine\nother = 1\n")
    applied: dict[str, object] = {}
    loaded: dict[str, object] = {}
    apply("orch", applied, dirs=[str(tmp_path)])
    with config.open() as f:
        load("orch", f, loaded)
    assert applied == loaded == {"queue": "mine"}
    assert "[orch] other: unknown option, ignored" in caplog.text
    written = io.StringIO()
    dump(written, schedulers=["orch"])
    assert written.getvalue() == "[orch]\nqueue = d\n\n"
    with get_runner() as runner:
        assert "orch" not in runner.scheduler_backends()
        role = Role("r", "i", entrypoint="x", resource=Resource(1, 0, 1))
        with pytest.raises(UnknownSchedulerException, match="unknown scheduler 'orch'"):
            runner.dryrun(AppDef("a", [role]), "orch")


def test_scheduler_factories_are_listed_in_the_order_of_upstream(install: Install) -> None:
    from torchx.schedulers import DEFAULT_SCHEDULER_MODULES, get_scheduler_factories

    install("acme-torchx", {"torchx.schedulers": ["acme = acme_sched:create_scheduler"]})
    names = list(get_scheduler_factories())
    assert names[:4] == ["acme", "local_docker", "local_cwd", "slurm"]
    known = [name for name in DEFAULT_SCHEDULER_MODULES if name in names]
    assert names[1 : 1 + len(known)] == known
    assert not set(names[1 + len(known) :]) & set(DEFAULT_SCHEDULER_MODULES)


def test_reregistering_an_upstream_scheduler_is_no_conflict(install: Install) -> None:
    install(
        "acme-torchx",
        {
            "torchx.schedulers": [
                "local_cwd = torchx.schedulers.local_scheduler:create_scheduler",
                "cwd2 = torchx.schedulers.local_scheduler:create_scheduler",
            ]
        },
    )
    catalog = get_manager().schedulers()
    assert not catalog.conflicts
    assert "cwd2" in catalog


def test_registering_upstreams_own_tracker_is_no_conflict(install: Install) -> None:
    install("torchx-nightly", {"torchx.tracker": ["fsspec = torchx.tracker.backend.fsspec:create"]})
    catalog = get_manager().trackers()
    assert not catalog.conflicts
    assert catalog["fsspec"].origin.distribution == "torchx_tracker_fsspec"


@pytest.mark.parametrize(
    ("group", "name", "catalog", "hidden"),
    [
        ("torchx.schedulers", "slurm", "schedulers", "torchx_sched_slurm"),
        ("torchx.named_resources", "aws_p3.2xlarge", "named_resources", "torchx_resources_aws"),
        ("torchx.tracker", "fsspec", "trackers", "torchx_tracker_fsspec"),
        ("torchx.cli.cmds", "status", "commands", "torchx_cli"),
    ],
)
def test_an_older_plugin_replaces_a_built_in_one_of_the_same_name(
    install: Install, group: str, name: str, catalog: str, hidden: str
) -> None:
    install("acme-dist", {group: [f"{name} = acme_sched:create_scheduler"]})
    found = getattr(get_manager(), catalog)()
    assert not found.conflicts
    assert found[name].origin.distribution == "acme_dist"
    assert [record.origin.distribution for record in found.overridden[name]] == [hidden]


def test_an_older_plugin_does_not_replace_a_plugin_of_others(install: Install) -> None:
    hook = "from torchx_specs.hookspecs import *\n@hookimpl\ndef torchx_schedulers():\n"
    install("acme-dist", {"torchx.schedulers": ["acme = acme_sched:create_scheduler"]})
    install(
        "beta-dist",
        {"torchx": ["beta = beta_plugin"]},
        {"beta_plugin.py": hook + "    yield SchedulerPlugin('acme', 'beta:create')\n"},
    )
    with pytest.raises(PluginError, match=r"beta_dist 1\.2 and acme_dist 1\.2: uninstall one"):
        get_manager().schedulers()["acme"]


def test_two_plugins_with_one_name_are_an_error_that_names_both(install: Install) -> None:
    install("one-dist", {"torchx.schedulers": ["acme = acme_sched:create_scheduler"]})
    install("two-dist", {"torchx.schedulers": ["acme = other_sched:create_scheduler"]})
    with pytest.raises(PluginError, match=r"one_dist 1\.2.*two_dist 1\.2"):
        get_manager().schedulers()["acme"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:create", "No module named 'no_such_module'"),
        ("acme_sched:nothing", "has no attribute 'nothing'"),
        ("raises:create", "RuntimeError: broken on import"),
    ],
)
def test_an_entry_point_of_a_missing_object_fails_when_used(
    install: Install, value: str, message: str
) -> None:
    install(
        "acme-torchx",
        {"torchx.schedulers": [f"acme = {value}"]},
        {"acme_sched.py": SCHEDULER, "raises.py": "raise RuntimeError('broken on import')"},
    )
    assert "acme" in get_manager().schedulers()
    with pytest.raises(PluginError, match=f"acme_torchx 1.2.*{message}"):
        get_manager().schedulers()["acme"].load()("session")


def test_a_named_resource_is_found(install: Install) -> None:
    install(
        "acme-torchx",
        {"torchx.named_resources": ["gpu_x2 = acme_res:gpu_x2"]},
        {
            "acme_res.py": "from torchx.specs import Resource\n"
            "def gpu_x2():\n    return Resource(cpu=16, gpu=2, memMB=122_000)\n"
        },
    )
    from torchx.specs import resource

    gpu_x2 = resource(h="GPU_X2")
    assert (gpu_x2.cpu, gpu_x2.gpu, gpu_x2.memMB) == (16, 2, 122_000)
    assert gpu_x2.get_resource_name() == "gpu_x2"
    assert resource(h="gpu.small").gpu == 1


def test_plugin_components_replace_the_built_in_ones(install: Install) -> None:
    install(
        "acme-torchx", {"torchx.components": ["foo = acme_comp", "_0 = torchx.components.dist"]}
    )
    added = [c for c in get_manager().components() if c.replaces_builtins]
    assert [(c.group, c.module) for c in added] == [
        ("_0", "torchx_components.dist"),
        ("foo", "acme_comp"),
    ]


def test_a_function_may_return_the_module_of_components(install: Install) -> None:
    install(
        "acme-torchx",
        {"torchx.components": ["a = acme_comp:by_name", "b = acme_comp:by_module"]},
        {
            "acme_comp.py": "import json\n"
            "def by_name():\n    return 'json'\n"
            "def by_module():\n    return json\n"
        },
    )
    modules = {c.group: c.module for c in get_manager().components() if c.replaces_builtins}
    assert modules == {"a": "json", "b": "json"}


def test_trackers_and_event_handlers_are_found(install: Install) -> None:
    install(
        "acme-torchx",
        {
            "torchx.tracker": ["acme = acme_track:create"],
            "torchx.event_handlers": ["null = acme_track:handler"],
        },
        {
            "acme_track.py": "import logging\n"
            "def create(config):\n    return ('tracker', config)\n"
            "def handler():\n    return logging.NullHandler()\n"
        },
    )
    assert get_manager().trackers()["acme"].load()("cfg") == ("tracker", "cfg")
    assert isinstance(get_manager().event_handlers()["null"].load()(), logging.NullHandler)


COMMAND = '''
from torchx.cli.cmd_base import SubCommand

class CmdQuota(SubCommand):
    """Show the quota.

    A longer description.
    """
    def add_arguments(self, subparser):
        subparser.add_argument("--team", default="none")
        subparser.add_argument("users", nargs="*")
    def run(self, args):
        print(f"quota of {args.team} {args.users}")

def not_a_command():
    return object()
'''


def test_argparse_commands_become_click_commands(install: Install) -> None:
    from click.testing import CliRunner

    install(
        "acme-torchx",
        {"torchx.cli.cmds": ["quota = acme_cmd:CmdQuota", "odd = acme_cmd:not_a_command"]},
        {"acme_cmd.py": COMMAND},
    )
    commands = get_manager().commands()
    assert commands["quota"].summary_text() == "Show the quota."
    command = commands["quota"].load()()
    done = CliRunner().invoke(command, ["--team", "ml", "a", "b"])
    assert (done.exit_code, done.output) == (0, "quota of ml ['a', 'b']\n")
    shown = CliRunner().invoke(command, ["--help"])
    assert shown.exit_code == 0
    assert "usage: torchx quota" in shown.output
    assert "--team" in shown.output
    assert CliRunner().invoke(command, ["--tem"]).exit_code == 2
    with pytest.raises(PluginError, match=r"'odd' of acme_torchx 1\.2.*SubCommand"):
        commands["odd"].load()()


def test_the_help_names_a_broken_command(install: Install) -> None:
    install("acme-torchx", {"torchx.cli.cmds": ["quota = no_such:CmdQuota"]})
    assert "no_such" in get_manager().commands()["quota"].summary_text()


def test_a_broken_older_plugin_does_not_affect_others(install: Install) -> None:
    path = install(
        "acme-torchx",
        {
            "torchx.components": ["a = acme_comp:raises"],
            "torchx.named_resources": ["good = acme_comp:good"],
        },
        {
            "acme_comp.py": "from torchx.specs import Resource\n"
            "def raises():\n    raise RuntimeError('no')\n"
            "def good():\n    return Resource(1, 0, 1)\n"
        },
    )
    manager = get_manager()
    assert not [c for c in manager.components() if c.replaces_builtins]
    assert any("RuntimeError: no" in p.message for p in manager.problems)
    assert manager.named_resources()["good"].load()().cpu == 1
    code = "from torchx.specs import resource; print(resource(h='good').cpu)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"


def test_a_plugin_may_read_component_files(install: Install) -> None:
    install(
        "acme-torchx",
        {"torchx.file": ["get_file_contents = acme_files:read"]},
        {
            "acme_files.py": "def read(path):\n"
            "    if path != 'store://comp.py':\n"
            "        raise FileNotFoundError(path)\n"
            "    return (\n"
            "        'from torchx.specs import AppDef\\n'\n"
            "        'def fn(name: str) -> AppDef:\\n    return AppDef(name)\\n'\n"
            "    )\n"
        },
    )
    from torchx.specs.finder import get_component
    from torchx.util.io import read_conf_file

    assert get_component("store://comp.py:fn").fn("x").name == "x"
    assert "def fn" in read_conf_file("store://comp.py")


def test_a_plugin_sets_the_image_of_components_before_their_import(install: Install) -> None:
    folder = install(
        "acme-version",
        {"torchx.version": ["get_torchx_image = acme_version:get_torchx_image"]},
        {"acme_version.py": "def get_torchx_image(version): return f'acme/torchx:{version}'\n"},
    )
    code = """
from torchx_specs.plugins.manager import get_manager
from torchx_specs.schedulers.logs import LogQuery
get_manager().components()
from torchx_components.utils import echo
print(echo("hi").roles[0].image)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("acme/torchx:")
