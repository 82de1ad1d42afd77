"""Tests of the index of submitted jobs."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from torchx_kit.jobs.index import JobIndex, entry_from_dict
from torchx_specs.errors import BackendError


@dataclass
class Entry:
    app_id: str
    folder: str = ""


@dataclass
class Role:
    name: str
    replicas: int


@dataclass
class EntryWithRoles:
    app_id: str
    roles: list[Role]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobIndex[Entry]:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    return JobIndex("cluster", "jobs", from_dict=lambda data: Entry(**data))


def test_removed_entry_is_missing(index: JobIndex[Entry]) -> None:
    index.put(Entry("a"))
    index.remove("a")
    index.remove("a")
    assert index.get("a") is None


def test_entries_are_stored_and_replaced(index: JobIndex[Entry], tmp_path: Path) -> None:
    assert index.get("b") is None
    assert list(index.entries()) == []
    index.put(Entry("b", "/one"))
    index.put(Entry("a", "caf\xe9 \udcff"))
    index.put(Entry("b", "/two"))
    assert index.get("b") == Entry("b", "/two")
    assert list(index.entries()) == [Entry("a", "caf\xe9 \udcff"), Entry("b", "/two")]
    folder = tmp_path / "home" / "cluster" / "jobs"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"app_id": "a", "more": 1}', "\x80"])
def test_invalid_entry_is_skipped(index: JobIndex[Entry], tmp_path: Path, content: str) -> None:
    index.put(Entry("a"))
    (tmp_path / "home/cluster/jobs/a.json").write_text(content, encoding="latin-1")
    assert index.get("a") is None
    assert list(index.entries()) == []


def test_entry_that_another_user_can_change_is_skipped(
    index: JobIndex[Entry], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        index.put(Entry(name))
        (tmp_path / f"home/cluster/jobs/{name}.json").chmod(0o666)
    assert list(index.entries()) == []
    [message] = caplog.messages
    assert message == (
        f"a file in {tmp_path}/home/cluster/jobs is not used: other users can write to it (mode"
        " 0666); add the folder to TORCHX_TRUSTED_FOLDERS if you trust its files"
    )


@pytest.mark.parametrize("app_id", ["", ".", "..", "../jobs/a", "/etc/passwd"])
def test_id_cannot_be_a_path(index: JobIndex[Entry], app_id: str) -> None:
    index.put(Entry("a"))
    assert index.get(app_id) is None


def test_home_that_is_not_writable_is_an_error(index: JobIndex[Entry], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(BackendError, match=r"^cannot write to .*; set TORCHX_HOME to a directory"):
        index.put(Entry("a"))
    assert os.listdir(tmp_path) == ["home"]


def test_entry_with_roles_is_restored_without_unknown_keys() -> None:
    entry = EntryWithRoles("a", [Role("main", 2)])
    data = {**asdict(entry), "of_a_later_version": 1}
    assert entry_from_dict(EntryWithRoles, Role, data) == entry
    with pytest.raises(TypeError):
        entry_from_dict(EntryWithRoles, Role, {"roles": []})
