"""Tests of ``torchx workspace prune`` with fake pruners."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from torchx_cli.output.printing import format_bytes
from torchx_specs.errors import BackendError
from torchx_specs.hookspecs import PrunerPlugin, hookimpl
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import Origin
from torchx_specs.workspace.pruning import Prunable, PruneQuery

Cli = Callable[..., Any]


class FakePruners:
    """Two pruners: ``disk`` finds a removable, a used and a stuck item, and ``service`` fails."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.queries: list[PruneQuery] = []

    @hookimpl
    def torchx_pruners(self) -> Iterator[PrunerPlugin]:
        yield PrunerPlugin("disk", self.find)
        yield PrunerPlugin("service", self.fail)

    def find(self, query: PruneQuery) -> Iterator[Prunable]:
        self.queries.append(query)
        yield Prunable("/a", 1_500_000, lambda: self.removed.append("/a"), 0.0)
        yield Prunable("/used", None, None, None, "job 7 uses it")
        yield Prunable("/stuck", None, self.refuse)

    def fail(self, query: PruneQuery) -> Iterator[Prunable]:
        raise BackendError("no answer from the service")

    def refuse(self) -> None:
        raise BackendError("cannot remove /stuck: Permission denied")


@pytest.fixture
def pruners(plugin: object) -> FakePruners:
    fake = FakePruners()
    get_manager().register(fake, "pruners", Origin("pruners", "1", "pruners"))
    return fake


def test_group_without_a_command_prints_its_help(cli: Cli, pruners: FakePruners) -> None:
    result = cli("workspace")
    assert result.code == 1
    assert "prune" in result.out
    assert result.err == ""


def test_dry_run_shows_sizes_and_removes_nothing(cli: Cli, pruners: FakePruners) -> None:
    result = cli("workspace", "prune", "--dryrun")
    assert result.code == 0
    assert "1.5 MB" in result.out
    assert "kept /used: job 7 uses it" in result.out
    assert "would remove 2 items (at least 1.5 MB)" in result.out
    assert "service: not checked: no answer from the service" in result.err
    assert pruners.removed == []
    assert pruners.queries == [PruneQuery(None, False)]


def test_json_has_every_item_its_bytes_and_the_problems(cli: Cli, pruners: FakePruners) -> None:
    result = cli("workspace", "prune", "--dryrun", "--all", "--older-than", "2d", "--json")
    data = json.loads(result.out)
    assert pruners.queries == [PruneQuery(2 * 86400.0, True)]
    assert data["dryrun"] is True
    assert data["removed_bytes"] == 0
    assert data["items"][0] == {
        "pruner": "disk",
        "name": "/a",
        "bytes": 1_500_000,
        "last_used": "1970-01-01T00:00:00Z",
        "removable": True,
        "removed": False,
        "reason": None,
    }
    assert data["items"][1]["reason"] == "job 7 uses it"
    assert data["problems"] == [{"pruner": "service", "message": "no answer from the service"}]


def test_removal_reports_each_item_and_goes_on_after_a_failure(
    cli: Cli, pruners: FakePruners
) -> None:
    result = cli("workspace", "prune", "--yes")
    assert result.code == 3
    assert pruners.removed == ["/a"]
    assert "removed /a (1.5 MB)" in result.out
    assert "removed 1 item (1.5 MB)" in result.out
    assert result.error == "cannot remove /stuck: Permission denied"
    data = json.loads(cli("workspace", "prune", "--yes", "-o", "json").out)
    assert [item["removed"] for item in data["items"]] == [True, False, False]
    assert data["items"][2]["reason"] == "cannot remove /stuck: Permission denied"
    assert data["removed_bytes"] == 1_500_000


def test_without_a_terminal_the_user_must_confirm_with_an_option(
    cli: Cli, pruners: FakePruners
) -> None:
    result = cli("workspace", "prune")
    assert result.code == 2
    assert "pass --yes" in result.error
    assert pruners.queries == []


def test_json_needs_an_option_because_the_data_is_not_shown(
    cli: Cli, pruners: FakePruners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchx_cli.commands.workspace.is_terminal", lambda stream: True)
    result = cli("workspace", "prune", "-o", "json")
    assert result.code == 2
    assert "pass --yes to remove without a question, or --dryrun" in result.error
    assert pruners.queries == []


@pytest.mark.parametrize(("answer", "removed"), [(True, ["/a"]), (False, [])])
def test_on_a_terminal_the_command_asks(
    cli: Cli,
    pruners: FakePruners,
    monkeypatch: pytest.MonkeyPatch,
    answer: bool,
    removed: list[str],
) -> None:
    questions: list[str] = []

    def confirm(question: str, **settings: object) -> bool:
        questions.append(question)
        return answer

    monkeypatch.setattr("click.confirm", confirm)
    monkeypatch.setattr("torchx_cli.commands.workspace.is_terminal", lambda stream: True)
    cli("workspace", "prune")
    assert questions == ["Remove 2 items (at least 1.5 MB)?"]
    assert pruners.removed == removed


def test_only_selects_pruners_and_their_failure_is_the_exit_code(
    cli: Cli, pruners: FakePruners
) -> None:
    assert cli("workspace", "prune", "--dryrun", "--only", "disk").code == 0
    assert cli("workspace", "prune", "--dryrun", "--only", "service").code == 3
    result = cli("workspace", "prune", "--dryrun", "--only", "dsk")
    assert result.code == 2
    assert "there is no pruner 'dsk'" in result.error
    assert "disk, service" in result.error


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_960, "1.0 MB"),
        (12_345_678_901, "12.3 GB"),
        (10**20, "100000.0 PB"),
    ],
)
def test_sizes_have_units(size: int | None, text: str) -> None:
    assert format_bytes(size) == text
