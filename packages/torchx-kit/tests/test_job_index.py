"""Tests of the index of submitted jobs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from torchx_kit.batch.entries import Entry, Index, RoleEntry
from torchx_specs.errors import BackendError


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    return Index("cluster")


def entry(app_id: str, folder: str = "") -> Entry:
    return Entry(app_id, "app", folder, "", [RoleEntry("main", "main", 2)])


def test_removed_entry_is_missing(index: Index) -> None:
    index.put(entry("a"))
    index.remove("a")
    index.remove("a")
    assert index.get("a") is None


def test_entries_are_stored_and_replaced(index: Index, tmp_path: Path) -> None:
    assert index.get("b") is None
    assert list(index.entries()) == []
    index.put(entry("b", "/one"))
    index.put(entry("a", "caf\xe9 \udcff"))
    index.put(entry("b", "/two"))
    assert index.get("b") == entry("b", "/two")
    assert list(index.entries()) == [entry("a", "caf\xe9 \udcff"), entry("b", "/two")]
    folder = tmp_path / "home" / "cluster" / "apps"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"app_id": "a", "more": 1}', "\x80"])
def test_invalid_entry_is_skipped(index: Index, tmp_path: Path, content: str) -> None:
    index.put(entry("a"))
    (tmp_path / "home/cluster/apps/a.json").write_text(content, encoding="latin-1")
    assert index.get("a") is None
    assert list(index.entries()) == []


def test_entry_that_another_user_can_change_is_skipped(
    index: Index, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "ab":
        index.put(entry(name))
        (tmp_path / f"home/cluster/apps/{name}.json").chmod(0o666)
    assert list(index.entries()) == []
    [message] = caplog.messages
    assert message == (
        f"a file in {tmp_path}/home/cluster/apps is not used: other users can write to it (mode"
        " 0666); add the folder to TORCHX_TRUSTED_FOLDERS if you trust its files"
    )


@pytest.mark.parametrize("app_id", ["", ".", "..", "../apps/a", "/etc/passwd"])
def test_id_cannot_be_a_path(index: Index, app_id: str) -> None:
    index.put(entry("a"))
    assert index.get(app_id) is None


def test_home_that_is_not_writable_is_an_error(index: Index, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(BackendError, match=r"^cannot write to .*; set TORCHX_HOME to a directory"):
        index.put(entry("a"))
    assert os.listdir(tmp_path) == ["home"]
