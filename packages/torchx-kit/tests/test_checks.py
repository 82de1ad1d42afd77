"""Tests of the check of a batch system's commands, and of the checks of trackers' arguments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchx_kit.checks import check_commands, ok
from torchx_kit.trackers.checks import check_run_id, check_source_id, sources_with_artifact
from torchx_kit.trackers.lineage import links_to_sources
from torchx_specs.plugins.check_results import CheckResult
from torchx_specs.trackers.api import LineageLink, TrackerSource, TrackerValueError


def _answers() -> Iterator[CheckResult]:
    yield ok("the service answers")


def test_the_other_check_runs_if_all_commands_exist() -> None:
    results = list(check_commands("Acme", ["sh", "cat"], "install Acme", _answers))
    assert results == [CheckResult("ok", "the service answers")]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["no-such-1", "no-such-2"], "Acme is not installed: no-such-1, no-such-2 are not on PATH"),
        (["sh", "no-such-1"], "commands of Acme are not on PATH: no-such-1"),
    ],
)
def test_a_missing_command_is_the_only_result(names: list[str], message: str) -> None:
    results = list(check_commands("Acme", names, "install Acme", _answers))
    assert results == [CheckResult("error", message, "install Acme")]


def test_empty_ids_are_refused() -> None:
    with pytest.raises(TrackerValueError, match="the run id is empty"):
        check_run_id("")
    with pytest.raises(TrackerValueError, match="the id of a source of run 'r' is empty"):
        check_source_id("r", "")
    check_source_id("r", "s")


def test_sources_by_artifact_and_their_links() -> None:
    sources = [TrackerSource("a", None), TrackerSource("b", "model")]
    assert sources_with_artifact(sources, None) == sources
    assert sources_with_artifact(sources, "model") == sources[1:]
    assert links_to_sources("r", sources) == [
        LineageLink("r", "a", None),
        LineageLink("r", "b", "model"),
    ]
