"""Tests of the command ``torchx tracker`` with doubles; integration/trackers has real trackers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from torchx_specs.trackers.api import (
    Lineage,
    LineageLink,
    TrackerArtifact,
    TrackerBackendError,
    TrackerBase,
    TrackerSource,
)
from torchx_tracker import command as command_module
from torchx_tracker.command import command
from torchx_tracker.printing import format_tree, printable

HERE = __name__


class Recorded(TrackerBase):
    """A read-only tracker with fixed records."""

    def __init__(self, config: str | None = None) -> None:
        self.pairs: dict[str, object] = {
            "loss": 0.25,
            "note": "x é",
            "nested": [1, {"z": None}],
            "nan": float("nan"),
        }
        if config == "other":
            self.pairs = {"loss": "0.25", "more": 1}

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None: ...

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        found = [TrackerArtifact("model", "/m", {"k": 1}), TrackerArtifact("log", "/l", None)]
        return {a.name: a for a in found} if run_id == "run" else {}

    def add_metadata(self, run_id: str, **kwargs: object) -> None: ...

    def metadata(self, run_id: str) -> Mapping[str, object]:
        return self.pairs if run_id == "run" else {}

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None: ...

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        return []

    def lineage(self, run_id: str) -> Lineage:
        links = [
            LineageLink("run", "parent", "model"),
            LineageLink("run", "parent", "vocab"),
            LineageLink("run", "dataset"),
            LineageLink("parent", "dataset"),
            LineageLink("dataset", "raw"),
            LineageLink("child", "run", "weights"),
        ]
        if run_id != "run":
            return Lineage(run_id)
        sources = [TrackerSource("parent", "model"), TrackerSource("dataset", None)]
        return Lineage(run_id, sources, ["child"], links)

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        return ["child"] if kwargs.get("parent_run_id") == "run" else ["run", "child"]


class Failing(Recorded):
    """A tracker whose method ``metadata`` fails."""

    def metadata(self, run_id: str) -> Mapping[str, object]:
        raise TrackerBackendError("no route to host")


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Return the configured trackers, which replace those in the runner's configuration files.

    The returned dictionary maps the name of a tracker to its configuration. A test may change it.
    """
    configs: dict[str, str | None] = {f"{HERE}:Recorded": None}
    runner = type(sys)("torchx_runner.default_tracker")
    runner.readable_trackers = lambda: configs  # type: ignore[attr-defined]
    package = sys.modules.get("torchx_runner") or type(sys)("torchx_runner")
    monkeypatch.setitem(sys.modules, "torchx_runner", package)
    monkeypatch.setitem(sys.modules, "torchx_runner.default_tracker", runner)
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])
    return configs


def call(*argv: str) -> Result:
    return CliRunner().invoke(command, argv)


def test_list_runs(configured: dict[str, str | None]) -> None:
    expected = "JOB ID\n--------\nchild\nrun\n"
    assert call("list", "jobs").stdout == expected
    assert call("list", "runs").stdout == expected
    only = call("list", "jobs", "--parent-run-id", "run")
    assert only.stdout == "JOB ID\n--------\nchild\n"


def test_list_metadata(configured: dict[str, str | None]) -> None:
    assert call("list", "metadata", "run").stdout == (
        "ID      VALUE\n"
        "------  ----------------\n"
        "loss    0.25\n"
        "note    x é\n"
        "nested  [1, {'z': None}]\n"
        "nan     nan\n"
    )


def test_a_run_has_the_number_of_its_submission(
    configured: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal: Any = type(sys)("torchx_runner.submissions.journal")
    journal.numbered_submission = lambda text: (
        SimpleNamespace(handle="run") if "1" in text else None
    )
    monkeypatch.setitem(sys.modules, "torchx_runner.submissions", type(sys)("submissions"))
    monkeypatch.setitem(sys.modules, "torchx_runner.submissions.journal", journal)
    assert call("list", "metadata", "@1").stdout == call("list", "metadata", "run").stdout


def test_list_artifacts(configured: dict[str, str | None]) -> None:
    header = "ARTIFACT    PATH    METADATA\n----------  ------  ----------\n"
    model = "model       /m      {'k': 1}\n"
    assert call("list", "artifacts", "run").stdout == header + model + "log         /l\n"
    assert call("list", "artifacts", "--artifact", "model", "run").stdout == header + model


def test_lineage_prints_a_tree(configured: dict[str, str | None]) -> None:
    tree = (
        "run\n"
        "├─ made from\n"
        "│  ├─ parent (model, vocab)\n"
        "│  │  └─ dataset\n"
        "│  │     └─ raw\n"
        "│  └─ dataset ...\n"
        "└─ made into\n"
        "   └─ child (by weights)\n"
    )
    assert call("lineage", "run").stdout == tree
    assert call("list", "lineage", "run").stdout == tree


def test_tree_shows_each_run_of_a_cycle_once() -> None:
    links = [LineageLink(str(n), str((n + 1) % 3000)) for n in range(3000)]
    drawn = format_tree("0", links).splitlines()
    assert len(drawn) == 1 + 2 * 3001
    assert drawn[3000].endswith("└─ 2999")
    assert drawn[3001].endswith("└─ 0 ...")


def test_output_as_json_and_yaml(configured: dict[str, str | None]) -> None:
    name = f"{HERE}:Recorded"
    data = json.loads(call("list", "metadata", "-o", "json", "run").stdout)
    assert data == {
        "run_id": "run",
        "trackers": {name: {"loss": 0.25, "note": "x é", "nested": [1, {"z": None}], "nan": "nan"}},
    }
    artifacts = [
        {"name": "model", "path": "/m", "metadata": {"k": 1}},
        {"name": "log", "path": "/l", "metadata": None},
    ]
    listed = yaml.safe_load(call("list", "artifacts", "-o", "yaml", "run").stdout)
    assert listed == {"run_id": "run", "trackers": {name: artifacts}}
    runs = json.loads(call("list", "runs", "--json").stdout)
    assert runs == {"trackers": {name: ["child", "run"]}}
    lineage = json.loads(call("lineage", "-o", "json", "run").stdout)["trackers"][name]
    assert lineage["descendants"] == ["child"]
    assert lineage["sources"][0] == {"run_id": "parent", "artifact": "model"}
    assert {"run_id": "dataset", "source": "raw", "artifact": None} in lineage["links"]


def test_equal_rows_of_several_trackers_are_shown_once(
    configured: dict[str, str | None],
) -> None:
    configured[f"{HERE}:other"] = "other"
    rows = call("list", "metadata", "run").stdout.splitlines()[2:]
    assert [row.split()[0] for row in rows] == ["loss", "note", "nested", "nan", "more"]
    one = call("list", "metadata", "--tracker", f"{HERE}:other", "run").stdout.splitlines()[2:]
    assert [row.split() for row in one] == [["loss", "0.25"], ["more", "1"]]
    both = json.loads(call("list", "metadata", "-o", "json", "run").stdout)["trackers"]
    assert list(both) == [f"{HERE}:Recorded", f"{HERE}:other"]


def other(config: str | None) -> TrackerBase:
    return Recorded(config)


def test_failing_tracker_is_reported_beside_the_results_of_others(
    configured: dict[str, str | None],
) -> None:
    configured[f"{HERE}:Failing"] = None
    result = call("list", "metadata", "run")
    assert result.exit_code == 3
    assert "loss    0.25" in result.stdout
    assert result.stderr == f"torchx: error: tracker '{HERE}:Failing': no route to host\n"


def test_exit_code_if_every_tracker_fails(configured: dict[str, str | None]) -> None:
    configured.clear()
    configured["no.such.module:create"] = None
    result = call("list", "jobs")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "no.such.module" in result.stderr
    assert result.stderr.count("\n") == 1


def test_no_configured_tracker_is_an_error(configured: dict[str, str | None]) -> None:
    configured.clear()
    result = call("list", "jobs")
    assert "no trackers are configured" in str(result.exception)


def test_unknown_tracker_is_an_error(configured: dict[str, str | None]) -> None:
    result = call("list", "jobs", "--tracker", "nope")
    assert f"configured trackers: {HERE}:Recorded" in str(result.exception)


def test_missing_records_are_noted_on_stderr(
    configured: dict[str, str | None],
) -> None:
    result = call("list", "metadata", "nope")
    assert result.exit_code == 0
    assert result.stdout == "ID    VALUE\n----  -------\n"
    assert result.stderr == "torchx: run 'nope' has no metadata\n"
    assert "no artifact 'x'" in call("list", "artifacts", "--artifact", "x", "run").stderr
    alone = call("lineage", "alone")
    assert alone.stdout == "alone\n"
    assert "no sources and no descendants" in alone.stderr


@pytest.mark.parametrize("argv", [[], ["list"]])
def test_group_without_subcommand_shows_help(argv: list[str]) -> None:
    result = call(*argv)
    assert result.exit_code == 0
    assert "lineage" in result.stdout


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[2Jb\nc\udcff é") == "a\\x1b[2Jb\\nc\\udcff é"


def test_listing_the_command_does_not_import_click() -> None:
    from torchx_tracker import plugin

    (record,) = plugin.torchx_commands()
    assert record.name == "tracker"
    assert record.load() is command_module.command
