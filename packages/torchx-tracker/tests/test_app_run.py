from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from manual_clock import ManualClock
from torchx_kit.trackers.lookup import ENV_TORCHX_TRACKER_STRICT
from torchx_specs.errors import TrackerError
from torchx_specs.trackers.api import (
    Lineage,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
    TrackerValueError,
)
from torchx_tracker import AppRun, AppRunTrackableSource, app_run_from_env

MADE: list[DictTracker] = []


class DictTracker(TrackerBase):
    """A tracker in memory; every method raises ``error`` if it is set."""

    def __init__(self, config: str | None = None) -> None:
        self.config = config
        self.error: Exception | None = None
        self.calls = 0
        self.kept: dict[str, dict[str, object]] = {}
        self.kept_artifacts: dict[str, dict[str, TrackerArtifact]] = {}
        self.kept_sources: dict[str, list[TrackerSource]] = {}
        MADE.append(self)

    def _called(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        self._called()
        self.kept_artifacts.setdefault(run_id, {})[name] = TrackerArtifact(name, path, metadata)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        self._called()
        return self.kept_artifacts.get(run_id, {})

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        self._called()
        self.kept.setdefault(run_id, {}).update(kwargs)

    def metadata(self, run_id: str) -> Mapping[str, object]:
        self._called()
        return self.kept.get(run_id, {})

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        self._called()
        self.kept_sources.setdefault(run_id, []).append(TrackerSource(source_id, artifact_name))

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        self._called()
        return self.kept_sources.get(run_id, [])

    def lineage(self, run_id: str) -> Lineage:
        self._called()
        return Lineage(run_id, list(self.sources(run_id)))

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        self._called()
        parent = kwargs["parent_run_id"]
        for run_id, sources in self.kept_sources.items():
            if any(source.source_run_id == parent for source in sources):
                yield run_id


def refusing(config: str | None) -> TrackerBase:
    raise OSError("no route to host")


#: This module, in the names of factories.
HERE = __name__


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TORCHX_JOB_ID", "TORCHX_TRACKERS", "TORCHX_PARENT_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(ENV_TORCHX_TRACKER_STRICT, raising=False)
    AppRun.run_from_env.cache_clear()
    MADE.clear()
    yield
    AppRun.run_from_env.cache_clear()


def two() -> tuple[AppRun, DictTracker, DictTracker]:
    first, second = DictTracker(), DictTracker()
    return AppRun("run", [first, second]), first, second


# -- The tests below create a run from the environment.


def test_calls_without_trackers_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    run = app_run_from_env()
    run.add_metadata(a=1)
    run.add_artifact("model", "/m")
    run.add_source("parent")
    assert run.id == "<UNDEFINED>"
    assert run.job_id() == "<UNDEFINED>"
    assert run.backends == []
    assert list(run.sources()) == []
    assert list(run.children()) == []
    assert run.lineage() == Lineage("<UNDEFINED>")
    assert not caplog.records


def test_import_without_trackers_loads_few_modules() -> None:
    code = (
        "import sys, torchx_tracker\n"
        "torchx_tracker.app_run_from_env().add_metadata(a=1)\n"
        "loaded = ('pluggy', 'dataclasses', 'logging', 'json', 'fsspec', 'click', 'yaml')\n"
        "print([m for m in loaded if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_run_from_env_reads_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{HERE}:DictTracker"
    monkeypatch.setenv("TORCHX_JOB_ID", "local_cwd://s/job")
    monkeypatch.setenv("TORCHX_TRACKERS", f" {name} , nope")
    monkeypatch.setenv("TORCHX_TRACKER_" + name.upper() + "_CONFIG", "conf")
    monkeypatch.setenv("TORCHX_PARENT_RUN_ID", "parent")
    run = app_run_from_env()
    assert run.id == "local_cwd://s/job"
    (tracker,) = run.backends
    assert tracker is MADE[0]
    assert MADE[0].config == "conf"
    assert list(run.sources()) == [AppRunTrackableSource(AppRun("parent", [tracker]), None)]


def test_attempt_is_metadata_of_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "local_cwd://s/job")
    monkeypatch.setenv("TORCHX_TRACKERS", f"{HERE}:DictTracker")
    monkeypatch.setenv("TORCHX_ATTEMPT", "0")
    monkeypatch.setenv("TORCHX_RESUME_DIR", str(tmp_path))
    run = app_run_from_env()
    assert run.backends[0].metadata(run.id) == {"attempt": 0}
    (tmp_path / "step-99").mkdir()
    monkeypatch.setenv("TORCHX_ATTEMPT", "1")
    monkeypatch.setenv("TORCHX_RESTART_REASON", "preempted")
    AppRun.run_from_env.cache_clear()
    run = app_run_from_env()
    expected = {"attempt": 1, "restart_reason": "preempted", "resume_step": 99}
    assert run.backends[0].metadata(run.id) == expected


def test_run_from_env_returns_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "first")
    run = AppRun.run_from_env()
    monkeypatch.setenv("TORCHX_JOB_ID", "second")
    assert AppRun.run_from_env() is run
    assert app_run_from_env() is run


def test_missing_id_is_a_warning_if_there_are_trackers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHX_TRACKERS", f"{HERE}:DictTracker")
    with caplog.at_level(logging.WARNING):
        assert app_run_from_env().id == "<UNDEFINED>"
    assert "TORCHX_JOB_ID is not" in caplog.text
    AppRun.run_from_env.cache_clear()
    monkeypatch.setenv(ENV_TORCHX_TRACKER_STRICT, "1")
    with pytest.raises(TrackerError, match="TORCHX_JOB_ID is not"):
        app_run_from_env()


def test_tracker_that_cannot_be_created_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TORCHX_JOB_ID", "run")
    monkeypatch.setenv("TORCHX_TRACKERS", f"{HERE}:refusing,{HERE}:DictTracker,unknown")
    with caplog.at_level(logging.WARNING):
        assert app_run_from_env().backends == MADE
    assert "no route to host" in caplog.text
    assert "unknown tracker 'unknown'" in caplog.text
    AppRun.run_from_env.cache_clear()
    monkeypatch.setenv(ENV_TORCHX_TRACKER_STRICT, "1")
    with pytest.raises(TrackerError, match="no route to host"):
        app_run_from_env()


# -- The tests below use several trackers.


def test_writes_go_to_all_trackers() -> None:
    run, first, second = two()
    run.add_metadata(a=1)
    run.add_artifact("model", "/m", {"k": 1})
    run.add_source("parent", "weights")
    for tracker in (first, second):
        assert tracker.kept == {"run": {"a": 1}}
        assert tracker.kept_artifacts == {
            "run": {"model": TrackerArtifact("model", "/m", {"k": 1})}
        }
        assert tracker.kept_sources == {"run": [TrackerSource("parent", "weights")]}


def test_reads_come_from_the_first_working_tracker() -> None:
    run, first, second = two()
    run.add_source("parent", "weights")
    AppRun("child", run.backends).add_source("run")
    second.kept_sources.clear()
    assert list(run.sources()) == [
        AppRunTrackableSource(AppRun("parent", [first, second]), "weights")
    ]
    assert list(run.children()) == [AppRun("child", [first, second])]
    assert run.lineage().sources == [TrackerSource("parent", "weights")]
    first.error = TrackerBackendError("down")
    assert list(run.sources()) == []


# -- The tests below let trackers fail.


def test_failing_tracker_logs_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    run, first, second = two()
    first.error = TrackerBackendError("disk full")
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            run.add_metadata(n=number)
            run.add_artifact("model", "/m")
            run.add_source("parent")
        first.error = ConnectionError("refused")
        run.add_metadata(n=5)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "disk full" in caplog.text
    assert second.kept == {"run": {"n": 5}}
    first.error = None
    run.add_metadata(back="again")
    assert first.kept == {"run": {"back": "again"}}


def test_each_invalid_value_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    run, first, _ = two()
    with caplog.at_level(logging.WARNING):
        for key in ("a", "b", "a", "b"):
            first.error = TrackerValueError(f"'{key}' of run 'run' cannot be recorded")
            run.add_metadata(**{key: object()})
    assert len(caplog.records) == 2


@pytest.mark.parametrize("key", ["self", "run_id"])
def test_reserved_metadata_key_is_an_error(key: str, caplog: pytest.LogCaptureFixture) -> None:
    run, first, _ = two()
    with caplog.at_level(logging.WARNING):
        run.add_metadata(**{key: 1})
        run.add_metadata(fine=1)
    assert len(caplog.records) == 1
    assert f"'{key}' is not a valid metadata key" in caplog.text
    assert first.kept == {"run": {"fine": 1}}


def test_strict_mode_raises_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run, first, _ = two()
    first.error = TrackerBackendError("disk full")
    monkeypatch.setenv(ENV_TORCHX_TRACKER_STRICT, "true")
    with pytest.raises(TrackerBackendError, match="disk full"):
        run.add_metadata(a=1)
    with pytest.raises(TrackerBackendError, match="disk full"):
        run.sources()


def test_interrupts_are_raised() -> None:
    run, first, _ = two()
    first.error = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        run.add_metadata(a=1)


def test_slowly_failing_tracker_is_paused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, clock = DictTracker(), DictTracker(), ManualClock()
    run = AppRun("run", [first, second], clock=clock)

    def time_out(**kwargs: object) -> None:
        clock.now += 5.0
        raise TimeoutError

    monkeypatch.setattr(first, "_called", time_out)
    run.add_metadata(a=1)
    run.add_metadata(a=2)
    assert clock.now == 105.0
    assert second.kept == {"run": {"a": 2}}
    clock.now = 150.1
    monkeypatch.undo()
    run.add_metadata(a=3)
    assert first.kept == {"run": {"a": 3}}


# -- The test below compares and prints runs.


def test_runs_compare_and_print_like_values() -> None:
    tracker = DictTracker()
    assert AppRun("a", [tracker]) == AppRun("a", (tracker,))
    assert AppRun("a", []) != AppRun("b", [])
    assert AppRun("a", []) != "a"
    assert AppRun(id="a", backends=[]) == AppRun("a", [])
    assert repr(AppRun("a", [])) == "AppRun(id='a', backends=[])"
    source = AppRunTrackableSource(AppRun("a", []), "model")
    assert source == AppRunTrackableSource(parent=AppRun("a", []), artifact_name="model")
    assert repr(source) == (
        "AppRunTrackableSource(parent=AppRun(id='a', backends=[]), artifact_name='model')"
    )
