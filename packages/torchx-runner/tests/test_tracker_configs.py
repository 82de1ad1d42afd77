"""Tests of the launcher's tracker configurations, and the variables that pass them to jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from torchx_kit.trackers.inline import from_data_uri
from torchx_kit.trackers.lookup import (
    ENV_TORCHX_TRACKER_STRICT,
    config_from_environ,
    tracker_names,
)
from torchx_runner.tracker_configs import job_environment, resolve_configs
from torchx_specs.errors import ConfigError, TrackerError
from torchx_specs.hookspecs import TrackerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.trackers.api import TrackerBase


def unused(config: str | None) -> TrackerBase:
    raise AssertionError("no tracker is created")


def inlining(config: str | None) -> TrackerBase:
    raise AssertionError("no tracker is created")


inlining.inline_config = lambda config: f"inlined {config}"  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def installed_trackers() -> Iterator[None]:
    class Plugin:
        @hookimpl
        def torchx_trackers(self) -> list[TrackerPlugin]:
            return [TrackerPlugin("inlining", inlining), TrackerPlugin("memory", unused)]

    manager = PluginManager(discover=False)
    manager.register(Plugin(), "test")
    set_manager(manager)
    yield
    set_manager(None)


def test_a_job_reads_the_launchers_configurations() -> None:
    variables = job_environment({"inlining": "/x", "memory": "/y", "broken": None})
    assert variables == {
        "TORCHX_TRACKERS": "inlining,memory,broken",
        "TORCHX_TRACKER_INLINING_CONFIG": "inlined /x",
        "TORCHX_TRACKER_MEMORY_CONFIG": "/y",
    }
    names = tracker_names(variables["TORCHX_TRACKERS"])
    assert {name: config_from_environ(name, variables) for name in names} == {
        "inlining": "inlined /x",
        "memory": "/y",
        "broken": None,
    }


def test_a_name_that_is_not_installed_here_is_passed_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        variables = job_environment({"only_there": "/conf"})
    assert variables["TORCHX_TRACKER_ONLY_THERE_CONFIG"] == "/conf"
    assert "unknown tracker 'only_there'" in caplog.text


def test_a_strict_launcher_makes_strict_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_TORCHX_TRACKER_STRICT, "true")
    assert job_environment({"memory": None})[ENV_TORCHX_TRACKER_STRICT] == "1"
    assert job_environment({}) == {}


def test_two_names_with_one_variable_are_an_error() -> None:
    with pytest.raises(TrackerError, match="'a-b' and 'a_b'"):
        job_environment({"a-b": "1", "a_b": "2"})


def test_the_environment_wins_over_files() -> None:
    sections = {
        "fsspec": {"type": "fsspec", "config": "/f"},
        "mine": {"type": "my.mod:create", "config": "/m", "other": "x"},
        "spare": {"config": "/s"},
    }
    assert resolve_configs(sections, {}) == {"fsspec": "/f", "my.mod:create": "/m"}
    env = {"TORCHX_TRACKERS": " mine , third", "TORCHX_TRACKER_MINE_CONFIG": "/env"}
    assert resolve_configs(sections, env) == {"my.mod:create": "/env", "third": None}
    assert resolve_configs({"spare": {"config": "/s"}}, {}) == {}


def test_sections_of_one_type_have_the_same_configuration() -> None:
    sections = {"a": {"type": "fsspec", "config": "/a"}, "b": {"type": "fsspec", "config": "/b"}}
    with pytest.raises(ConfigError, match=r"\[tracker:b\]: another section configures .* 'fsspec'"):
        resolve_configs(sections, {})
    assert resolve_configs(sections, {"TORCHX_TRACKERS": "b"}) == {"fsspec": "/b"}


def test_other_keys_are_the_configuration_if_the_tracker_supports_inlining() -> None:
    keys = {"protocol": "file", "root_path": "/r", "empty": None}
    sections = {name: {"type": name, **keys} for name in ("inlining", "memory", "nope")}
    resolved = resolve_configs(sections, {})
    assert from_data_uri(resolved["inlining"] or "") == "protocol=file\nroot_path=/r"
    assert resolved["memory"] is None
    assert resolved["nope"] is None
    sections = {"inlining": {"type": "inlining", **keys, "config": "/f"}}
    assert resolve_configs(sections, {}) == {"inlining": "/f"}
