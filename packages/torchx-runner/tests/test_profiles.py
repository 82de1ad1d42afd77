"""Tests of profiles and of named resources in ``.torchxconfig``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchx_runner import Runner, get_runner
from torchx_runner.config import api as config
from torchx_runner.config import files
from torchx_runner.config.api import get_configured_trackers, plugin_sections
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs import AppDef, CfgVal, ConfigError, Resource, resource
from torchx_specs.errors import NamedResourceNotFoundError
from torchx_specs.hookspecs import ResourcePlugin, SchedulerPlugin


@pytest.fixture(autouse=True)
def _installed(plugins: Any, fake_scheduler_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins.add("torchx_schedulers", SchedulerPlugin("fake", fake_scheduler_class))
    monkeypatch.setattr(files, "_selected", None)


def write(folder: Path, text: str) -> Path:
    path = folder / ".torchxconfig"
    path.write_text(text)
    return path


PROFILES = """
[fake]
queue = plain
priority = 1
[profile.big.fake]
queue = large
[profile.big.component:dist.ddp]
j = 8x8
[component:dist.ddp]
j = 1x1
script = a.py
[profile.small.fake]
queue = tiny
"""


def options(profile: str | None = None, **given: CfgVal) -> dict[str, CfgVal]:
    cfg = dict(given)
    config.apply("fake", cfg, profile=profile)
    return cfg


def test_a_profile_wins_over_the_plain_section_and_a_given_value_over_both(cwd: Path) -> None:
    write(cwd, PROFILES)
    assert options() == {"queue": "plain", "priority": 1}
    assert options("big") == {"queue": "large", "priority": 1}
    assert options("big", queue="mine") == {"queue": "mine", "priority": 1}
    assert config.load_sections("component", profile="big") == {
        "dist.ddp": {"j": "8x8", "script": "a.py"}
    }


def test_a_profile_of_any_file_wins_over_the_plain_sections_of_all_files(
    home: Path, cwd: Path
) -> None:
    write(home, "[fake]\nqueue = home\n[profile.big.fake]\npriority = 5\n")
    write(cwd, "[profile.big.fake]\nqueue = here\npriority = 7\n")
    assert options("big") == {"queue": "here", "priority": 5}


def test_default_values_do_not_win_as_part_of_a_profile(cwd: Path) -> None:
    write(
        cwd,
        "[DEFAULT]\nqueue = default\n[fake]\nqueue = plain\n[profile.big.fake]\npriority = 2\n",
    )
    assert options("big") == {"queue": "plain", "priority": 2}


def test_the_variable_and_the_process_select_a_profile(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cwd, PROFILES)
    monkeypatch.setenv("TORCHX_PROFILE", "small")
    assert options()["queue"] == "tiny"
    files.select_profile("big")
    assert options()["queue"] == "large"
    files.select_profile("")
    assert options()["queue"] == "plain"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PROFILES, "unknown profile 'bgi'; did you mean 'big'? profiles: big, small (files read: "),
        ("", "unknown profile 'bgi'; no file has a section [profile.…] (files read: "),
    ],
)
def test_an_unknown_profile_is_one_line(cwd: Path, text: str, message: str) -> None:
    path = write(cwd, text)
    with pytest.raises(ConfigError) as caught:
        options("bgi")
    assert str(caught.value) == f"{message}{path})"


def test_an_error_names_the_section_of_the_profile(cwd: Path) -> None:
    path = write(cwd, "[profile.big.fake]\npriority = high\n")
    with pytest.raises(ConfigError) as caught:
        options("big")
    assert str(caught.value).startswith(f"{path}: [profile.big.fake] priority: ")


def test_list_values_tells_which_profile_a_value_belongs_to(
    cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(cwd, PROFILES))
    monkeypatch.setenv("TORCHX_PROFILE", "big")
    values = config.list_values()
    assert ("fake", "queue", "large", path, True, "big") in values
    assert ("fake", "queue", "plain", path, False, "") in values
    assert ("fake", "queue", "tiny", path, False, "small") in values
    assert len(values) == len({(value.section, value.key, value.profile) for value in values})


def test_a_runner_with_a_profile_completes_requests(
    cwd: Path, app: AppDef, fake_scheduler_class: Any
) -> None:
    write(cwd, PROFILES + "[profile.big.torchx:tracker]\nfsspec =\n")
    assert get_runner().dryrun(app, "fake").cfg["queue"] != "large"
    with get_runner(profile="big") as runner:
        assert runner.dryrun(app, "fake").cfg["queue"] == "large"
        assert runner.dryrun(app, "fake", {"queue": "mine"}).cfg["queue"] == "mine"
        assert runner._component_defaults["dist.ddp"]["j"] == "8x8"
        info = runner.dryrun(app, "fake")
        assert info.app is not None
        assert info.app.roles[0].env["TORCHX_TRACKERS"] == "fsspec"
    assert get_configured_trackers() == {}
    with pytest.raises(ConfigError, match="unknown profile 'bgi'"):
        get_runner(profile="bgi")


# -- named resources in the configuration


def test_a_section_defines_a_named_resource(cwd: Path) -> None:
    write(
        cwd,
        "[resources.big]\ncpu = 8\ngpu = 1\nmemMB = 64000\n"
        "capabilities = gpu_name=h100,count=4,efa=true\ndevices = vpc.amazonaws.com/efa=4\n"
        "[resources.small.cpu]\n",
    )
    plugin_manager()
    big = resource(h="BIG")
    assert (big.cpu, big.gpu, big.memMB) == (8, 1, 64000)
    assert big.capabilities == {"gpu_name": "h100", "count": 4, "efa": True}
    assert big.devices == {"vpc.amazonaws.com/efa": 4}
    assert big.get_resource_name() == "big"
    assert resource(h="small.cpu").cpu == resource().cpu
    with pytest.raises(NamedResourceNotFoundError, match="Did you mean `big`"):
        resource(h="bigg")


def test_a_configured_resource_overrides_that_of_a_plugin(cwd: Path, plugins: Any) -> None:
    plugins.add("torchx_named_resources", ResourcePlugin("big", lambda: Resource(1, 1, 1)))
    write(cwd, "[resources.big]\ncpu = 9\n")
    assert plugin_manager().problems == []
    assert resource(h="big").cpu == 9


def test_a_profile_changes_a_named_resource(cwd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(cwd, "[resources.big]\ncpu = 9\ngpu = 1\n[profile.x.resources.big]\ngpu = 4\n")
    monkeypatch.setenv("TORCHX_PROFILE", "x")
    plugin_manager()
    assert (resource(h="big").cpu, resource(h="big").gpu) == (9, 4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cpus = 8", "cpus: unknown key; did you mean 'cpu'?"),
        ("cpu = many", "cpu: 'many' is not a whole number of at least 1"),
        ("cpu = 0", "cpu: '0' is not a whole number of at least 1"),
        ("gpu = -1", "gpu: '-1' is not a whole number of at least 0"),
        ("memMB = 64GB", "memMB: '64GB' is not a whole number of at least 1"),
        ("devices = efa=x", "devices: 'x' is not a whole number of at least 0"),
        ("capabilities = fast", "capabilities: 'fast' is not of the form key=value,key2=value2"),
    ],
)
def test_a_wrong_resource_is_one_line_where_it_is_used(cwd: Path, line: str, message: str) -> None:
    path = write(cwd, f"[fake]\nqueue = x\n[resources.big]\n{line}\n")
    assert plugin_manager().problems == []
    with pytest.raises(ConfigError) as caught:
        resource(h="big")
    assert str(caught.value) == f"{path}:4: [resources.big] {message}"


def test_a_component_of_a_runner_uses_a_configured_resource(cwd: Path, runner: Runner) -> None:
    write(cwd, "[resources.big]\ncpu = 8\n")
    (cwd / "train.py").write_text(
        "from torchx_specs import AppDef, Role, resource\n"
        "def job(h: str) -> AppDef:\n"
        "    return AppDef('x', roles=[Role('r', 'i', entrypoint='e', resource=resource(h=h))])\n"
    )
    info = runner.dryrun_component("train.py:job", ["--h", "big"], "fake")
    assert info.app is not None
    assert info.app.roles[0].resource.cpu == 8


def test_both_shapes_of_the_sections_of_plugins_are_read(cwd: Path, home: Path) -> None:
    write(
        cwd,
        "[torchx:tracker]\nb =\na = my.mod:create\nc = unused\n[tracker:b]\nconfig = /b\n"
        "[tracker:new]\ntype = fsspec\n[tracker:c]\ntype = other\n"
        "[notifiers:team]\ntype = webhook\nurl = old\n[notifier:team]\nurl = new\n"
        "[log_sinks]\nkeep = file:///keep\noff = file:///off\n[log_sink:disk]\nurl = file:///disk\n"
        "[profile.big.log_sinks]\noff =\n",
    )
    assert list(plugin_sections("tracker").items()) == [
        ("b", {"type": "b", "config": "/b"}),
        ("a", {"type": "my.mod:create"}),
        ("c", {"type": "other"}),
        ("new", {"type": "fsspec"}),
    ]
    assert plugin_sections("notifier") == {"team": {"type": "webhook", "url": "new"}}
    assert plugin_sections("log_sink", profile="big") == {
        "keep": {"url": "file:///keep"},
        "off": {"url": ""},
        "disk": {"url": "file:///disk"},
    }
