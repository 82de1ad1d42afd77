"""Tests of how trackers are created from names and configurations."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import pytest

from torchx_kit.trackers.lookup import ENV_TORCHX_TRACKER_STRICT
from torchx_specs.errors import TrackerError
from torchx_specs.hookspecs import TrackerPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.trackers.api import Lineage, TrackerArtifact, TrackerBase, TrackerSource
from torchx_tracker.trackers import (
    build_tracker,
    build_trackers,
    configs_from_environ,
    trackers_from_environ,
)


class MemoryTracker(TrackerBase):
    """A tracker that records nothing."""

    def __init__(self, config: str | None = None) -> None:
        self.config = config

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None: ...

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        return {}

    def add_metadata(self, run_id: str, **kwargs: object) -> None: ...

    def metadata(self, run_id: str) -> Mapping[str, object]:
        return {}

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None: ...

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        return []

    def lineage(self, run_id: str) -> Lineage:
        return Lineage(run_id)

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        return []


def broken(config: str | None) -> TrackerBase:
    raise OSError("no route to host")


def not_a_tracker(config: str | None) -> object:
    return "a string"


class Plugin:
    @hookimpl
    def torchx_trackers(self) -> Iterator[TrackerPlugin]:
        yield TrackerPlugin("memory", MemoryTracker)
        yield TrackerPlugin("broken", broken)
        yield TrackerPlugin("odd", not_a_tracker)


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    manager = PluginManager(discover=False)
    manager.register(Plugin(), "test")
    set_manager(manager)
    monkeypatch.delenv(ENV_TORCHX_TRACKER_STRICT, raising=False)
    monkeypatch.delenv("TORCHX_TRACKERS", raising=False)
    yield
    set_manager(None)


def test_a_tracker_is_found_by_hook() -> None:
    made = build_tracker("memory", "conf")
    assert isinstance(made, MemoryTracker)
    assert made.config == "conf"


def test_a_factory_that_raises_is_named_and_the_configuration_is_not() -> None:
    with pytest.raises(
        TrackerError, match="'broken' cannot be created: OSError: no route"
    ) as raised:
        build_tracker("broken", "secret=hush")
    assert "hush" not in str(raised.value)


def test_a_factory_that_makes_something_else_is_an_error() -> None:
    with pytest.raises(TrackerError, match="returned a str"):
        build_tracker("odd", None)


def test_what_cannot_be_made_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        made = build_trackers({"broken": None, "nope": None, "memory": None})
    assert [type(m) for m in made] == [MemoryTracker]
    assert ["'broken'" in r.getMessage() for r in caplog.records] == [True, False]
    assert "'nope'" in caplog.records[1].getMessage()


def test_strict_raises_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrackerError):
        build_trackers({"broken": None}, strict=True)
    monkeypatch.setenv(ENV_TORCHX_TRACKER_STRICT, "1")
    with pytest.raises(TrackerError):
        build_trackers({"broken": None})
    assert build_trackers({"broken": None}, strict=False) == []


def test_configurations_come_from_the_environment() -> None:
    env = {
        "TORCHX_TRACKERS": "fsspec, my-t,plain",
        "TORCHX_TRACKER_FSSPEC_CONFIG": "/etc/conf",
        "TORCHX_TRACKER_MY-T_CONFIG": "older spelling",
    }
    assert configs_from_environ(env) == {
        "fsspec": "/etc/conf",
        "my-t": "older spelling",
        "plain": None,
    }


def test_no_trackers_no_variables() -> None:
    assert trackers_from_environ({}) == []
