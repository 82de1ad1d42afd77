"""The conformance suite of trackers.

::

    class TestAcme(TrackerConformance):
        unsupported = {"artifact_metadata": "Acme stores only the paths of artifacts"}

        @pytest.fixture
        def tracker(self, tmp_path):
            return AcmeTracker(str(tmp_path))

        @pytest.fixture
        def reopen(self, tmp_path):
            return lambda: AcmeTracker(str(tmp_path))

``unsupported`` names the features that the tracker's store lacks, with the reasons. The tests of
these features are skipped, and listed at the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from torchx_specs import TorchXError
from torchx_specs.trackers.api import TrackerArtifact, TrackerBase, TrackerSource
from torchx_testing.declared import Suite
from torchx_testing.hostile import HOSTILE_VALUES

#: The features that ``unsupported`` may name in the suite of trackers.
FEATURES = frozenset(
    {
        "artifacts",
        "artifact_metadata",
        "sources",
        "artifact_sources",
        "lineage",
        "run_ids",
        "parent_filter",
        "odd_run_ids",
        "odd_names",
        "typed_metadata",
        "cycles",
        "threads",
        "reopen",
    }
)

#: Ids of runs; some would be dangerous as paths, patterns or queries.
ODD_RUN_IDS = [
    "slurm://torchx/42",
    "kubernetes://torchx/ns:job-1",
    "a b",
    "../up",
    "/etc/passwd",
    "a/b/../c",
    ".",
    "*",
    "%2e%2e",
    "UPPER",
    "upper",
    'it\'s "quoted"; --',
    "\u00fcml\u00e4ut \u4e2d\u6587 \U0001f600",
    "a=b&c#d?e",
    "tab\tnewline\n",
    "x" * 180,
]

#: Names of artifacts and keys of metadata.
ODD_NAMES = [
    "model.pt",
    "a/b",
    "../up",
    "a b",
    "a.b-c_d",
    "\u00fc",
    "it's",
    "$(exit 7)",
    "x" * 150,
]


class TrackerConformance(Suite):
    """The conformance tests of a tracker. A subclass defines how to create and reopen its store.

    Attributes:
        tested_name: Name of the tracker in reports; empty means the name of the class.
        unsupported: The :data:`FEATURES` that the tracker's store lacks, with the reasons.
    """

    kind: ClassVar[str] = "tracker"
    features: ClassVar[frozenset[str]] = FEATURES

    # A subclass overrides the following fixtures and methods.

    @pytest.fixture
    def tracker(self) -> TrackerBase:
        """Return a tracker with an empty store."""
        raise NotImplementedError("a conformance class has to define the fixture `tracker`")

    @pytest.fixture
    def reopen(self) -> Callable[[], TrackerBase]:
        """Return a function that opens the store of ``tracker`` again."""
        raise NotImplementedError("define the fixture `reopen`, or declare the feature")

    @pytest.fixture
    def artifact(self) -> Callable[[str], str]:
        """Return a function that creates an artifact with the given name, and returns its path.

        The default only returns a path. Override this fixture if the tracker uploads artifacts, and
        so needs existing files.
        """
        return lambda name: f"s3://bucket/{name}"

    def same_path(self, given: str, found: str) -> bool:
        """Return True if ``found`` is the stored path of the artifact ``given``."""
        return given == found

    # The following tests record artifacts.

    @pytest.mark.gate
    def test_artifacts(self, tracker: TrackerBase, artifact: Callable[[str], str]) -> None:
        self.needs("artifacts")
        paths = {name: artifact(name) for name in ("model", "data")}
        for name, path in paths.items():
            tracker.add_artifact("run", name, path)
        found = tracker.artifacts("run")
        assert set(found) == {"model", "data"}
        for name, path in paths.items():
            assert isinstance(found[name], TrackerArtifact)
            assert found[name].name == name
            assert self.same_path(path, found[name].path)

    def test_metadata_of_artifacts(
        self, tracker: TrackerBase, artifact: Callable[[str], str]
    ) -> None:
        self.needs("artifacts", "artifact_metadata")
        tracker.add_artifact("run", "model", artifact("model"), {"epoch": "3", "k": "v"})
        tracker.add_artifact("run", "plain", artifact("plain"))
        found = tracker.artifacts("run")
        assert {"epoch": "3", "k": "v"}.items() <= dict(found["model"].metadata or {}).items()
        assert "epoch" not in (found["plain"].metadata or {})

    def test_an_artifact_of_the_same_name_is_replaced(
        self, tracker: TrackerBase, artifact: Callable[[str], str]
    ) -> None:
        self.needs("artifacts")
        first, second = artifact("first"), artifact("second")
        tracker.add_artifact("run", "model", first)
        tracker.add_artifact("run", "model", second)
        (found,) = tracker.artifacts("run").values()
        assert self.same_path(second, found.path)

    # The following tests record metadata.

    @pytest.mark.gate
    def test_metadata(self, tracker: TrackerBase) -> None:
        tracker.add_metadata("run", lr="0.1", model="big")
        tracker.add_metadata("run", lr="0.2", more="x")
        found = {key: str(value) for key, value in tracker.metadata("run").items()}
        assert {"lr": "0.2", "model": "big", "more": "x"}.items() <= found.items()

    def test_types_of_metadata(self, tracker: TrackerBase) -> None:
        self.needs("typed_metadata")
        given: dict[str, Any] = {
            "text": "a",
            "int": 3,
            "float": 0.1,
            "bool": True,
            "none": None,
            "list": [1, "a"],
            "dict": {"a": {"b": 1}},
        }
        tracker.add_metadata("run", **given)
        assert given.items() <= dict(tracker.metadata("run")).items()

    def test_what_cannot_be_recorded_is_refused(self, tracker: TrackerBase) -> None:
        class Strange:
            def __str__(self) -> str:
                return "strange"

        tracker.add_metadata("run", kept="1")
        try:
            tracker.add_metadata("run", good="1", strange=Strange())
        except TorchXError as e:
            assert "strange" in str(e)  # noqa: PT017 - that it raises is not required
            assert "strange" not in tracker.metadata("run")
        assert str(tracker.metadata("run")["kept"]) == "1"

    @pytest.mark.gate
    def test_hostile_values(self, tracker: TrackerBase) -> None:
        values = [value.text for value in HOSTILE_VALUES if len(value.text) < 200]
        given = {f"k{i}": text for i, text in enumerate(values)}
        tracker.add_metadata("run", **given)
        found = tracker.metadata("run")
        wrong = [text for key, text in given.items() if found.get(key) != text]
        assert not wrong, f"{len(wrong)} of {len(given)} values changed: {wrong}"

    # The following tests read and list runs.

    def test_a_run_that_nothing_was_recorded_of(self, tracker: TrackerBase) -> None:
        assert dict(tracker.metadata("nobody")) == {}
        if "artifacts" not in self.unsupported:
            assert dict(tracker.artifacts("nobody")) == {}
        if "sources" not in self.unsupported:
            assert list(tracker.sources("nobody")) == []
        if "run_ids" not in self.unsupported:
            assert "nobody" not in list(tracker.run_ids())

    def test_runs_are_kept_apart(
        self, tracker: TrackerBase, artifact: Callable[[str], str]
    ) -> None:
        tracker.add_metadata("one", k="1")
        tracker.add_metadata("two", k="2")
        assert str(tracker.metadata("one")["k"]) == "1"
        assert str(tracker.metadata("two")["k"]) == "2"
        self.needs("artifacts")
        tracker.add_artifact("one", "model", artifact("model"))
        assert dict(tracker.artifacts("two")) == {}

    def test_run_ids(self, tracker: TrackerBase) -> None:
        self.needs("run_ids")
        for run in ("one", "two", "three"):
            tracker.add_metadata(run, k="1")
        assert sorted(tracker.run_ids()) == ["one", "three", "two"]

    def test_odd_run_ids(self, tracker: TrackerBase) -> None:
        self.needs("odd_run_ids")
        for i, run in enumerate(ODD_RUN_IDS):
            tracker.add_metadata(run, number=str(i))
        for i, run in enumerate(ODD_RUN_IDS):
            assert str(tracker.metadata(run).get("number")) == str(i), run
        self.needs("run_ids")
        assert sorted(tracker.run_ids()) == sorted(ODD_RUN_IDS)

    def test_odd_names(self, tracker: TrackerBase, artifact: Callable[[str], str]) -> None:
        self.needs("odd_names")
        tracker.add_metadata("run", **{name: name for name in ODD_NAMES})
        found = tracker.metadata("run")
        assert {name: found.get(name) for name in ODD_NAMES} == {n: n for n in ODD_NAMES}
        self.needs("artifacts")
        path = artifact("model")
        for name in ODD_NAMES:
            tracker.add_artifact("run", name, path)
        assert set(tracker.artifacts("run")) == set(ODD_NAMES)

    # The following tests record sources and read the lineage.

    def test_sources(self, tracker: TrackerBase) -> None:
        self.needs("sources")
        tracker.add_source("child", "parent")
        tracker.add_source("child", "other")
        found = list(tracker.sources("child"))
        assert all(isinstance(source, TrackerSource) for source in found)
        assert {(s.source_run_id, s.artifact_name) for s in found} == {
            ("parent", None),
            ("other", None),
        }

    def test_sources_by_artifact(self, tracker: TrackerBase) -> None:
        self.needs("sources", "artifact_sources")
        tracker.add_source("child", "parent", "model")
        tracker.add_source("child", "parent", "data")
        tracker.add_source("child", "parent")
        found = {(s.source_run_id, s.artifact_name) for s in tracker.sources("child")}
        assert found == {("parent", "model"), ("parent", "data"), ("parent", None)}
        by_name = [(s.source_run_id, s.artifact_name) for s in tracker.sources("child", "model")]
        assert by_name == [("parent", "model")]
        assert list(tracker.sources("child", "no-such")) == []

    def test_a_source_counts_once(self, tracker: TrackerBase) -> None:
        self.needs("sources")
        for _ in range(3):
            tracker.add_source("child", "parent")
        assert [s.source_run_id for s in tracker.sources("child")] == ["parent"]

    def test_runs_by_their_parent(self, tracker: TrackerBase) -> None:
        self.needs("run_ids", "parent_filter")
        for run in ("parent", "one", "two", "stranger"):
            tracker.add_metadata(run, k="1")
        tracker.add_source("one", "parent")
        tracker.add_source("two", "parent")
        tracker.add_source("two", "stranger")
        assert sorted(tracker.run_ids(parent_run_id="parent")) == ["one", "two"]
        assert sorted(tracker.run_ids(parent_run_id="stranger")) == ["two"]
        assert list(tracker.run_ids(parent_run_id="nobody")) == []

    @pytest.mark.gate
    def test_lineage(self, tracker: TrackerBase) -> None:
        self.needs("lineage")
        for run in ("grandparent", "parent", "run", "child", "stranger"):
            tracker.add_metadata(run, k="1")
        tracker.add_source("parent", "grandparent")
        tracker.add_source("run", "parent")
        tracker.add_source("child", "run")
        found = tracker.lineage("run")
        assert found.run_id == "run"
        assert [s.source_run_id for s in found.sources] == ["parent", "grandparent"]
        assert list(found.descendants) == ["child"]
        ends = {(link.run_id, link.source_run_id) for link in found.links}
        assert ends == {("run", "parent"), ("parent", "grandparent"), ("child", "run")}
        nobody = tracker.lineage("stranger")
        assert (nobody.sources, nobody.descendants) == ([], [])

    def test_a_cycle_in_the_lineage(self, tracker: TrackerBase) -> None:
        self.needs("lineage", "cycles")
        for run in ("a", "b", "c"):
            tracker.add_metadata(run, k="1")
        for run, source in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")):
            tracker.add_source(run, source)
        found = tracker.lineage("a")
        assert {s.source_run_id for s in found.sources} == {"b", "c"}
        assert set(found.descendants) == {"b", "c"}

    # The following tests use several threads or processes.

    def test_threads_lose_nothing(
        self, tracker: TrackerBase, artifact: Callable[[str], str]
    ) -> None:
        self.needs("threads")
        path = artifact("shared")

        def record(i: int) -> None:
            tracker.add_metadata("run", **{f"key{i}": str(i)})
            if "artifacts" not in self.unsupported:
                tracker.add_artifact("run", f"artifact{i}", path)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(record, range(40)))
        found = tracker.metadata("run")
        assert {f"key{i}" for i in range(40)} <= found.keys()
        self.needs("artifacts")
        assert set(tracker.artifacts("run")) == {f"artifact{i}" for i in range(40)}

    @pytest.mark.gate
    def test_another_process_sees_the_same(
        self, tracker: TrackerBase, request: pytest.FixtureRequest
    ) -> None:
        self.needs("reopen")
        tracker.add_metadata("run", k="1")
        again: Mapping[str, object] = request.getfixturevalue("reopen")().metadata("run")
        assert str(again["k"]) == "1"
