"""Tests of pruning old caches, and of removing folders while other processes use the folders."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from torchx_kit.workspace.pruning import PruneError, remove_folder, tree_size, unused_caches
from torchx_specs.workspace.pruning import PruneQuery


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "cache"
    for name, age in {"digests/old": 9, "digests/new": 0, "layers/new": 1}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
        when = time.time() - age * 86400
        os.utime(path, (when, when))
    return folder


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_cache_files_of_the_last_week_stay(cache: Path) -> None:
    (found,) = unused_caches(PruneQuery())
    assert (found.name, found.size) == (str(cache / "digests"), 5)
    assert names(cache) == ["digests/new", "digests/old", "layers/new"]
    assert found.remove is not None
    found.remove()
    found.remove()  # files that were already removed are no error
    assert names(cache) == ["digests/new", "layers/new"]


def test_all_caches_are_found_on_request(cache: Path) -> None:
    for found in list(unused_caches(PruneQuery(include_newest=True))):
        assert found.remove is not None
        found.remove()
    assert names(cache) == []
    assert list(unused_caches(PruneQuery())) == []


def test_links_in_the_cache_are_not_followed(cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("keep")
    (cache / "link").symlink_to(outside)
    (cache / "digests" / "link").symlink_to(outside / "file")
    for found in list(unused_caches(PruneQuery(0, include_newest=True))):
        assert found.remove is not None
        found.remove()
    assert (outside / "file").read_text() == "keep"


def test_home_without_a_cache_has_nothing_to_prune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "missing"))
    assert list(unused_caches(PruneQuery())) == []


def test_folder_that_is_used_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()
    (folder / "a").write_text("123")
    assert tree_size(str(folder)) == 3
    with pytest.raises(PruneError, match="a submission has just used it"):
        remove_folder(str(folder), lambda path: False)
    assert names(tmp_path) == ["snapshot/a"]
    remove_folder(str(folder), lambda path: True)
    remove_folder(str(folder), lambda path: True)
    assert os.listdir(tmp_path) == []


def test_folder_that_a_submission_makes_anew_stays(tmp_path: Path) -> None:
    folder = tmp_path / "snapshot"
    folder.mkdir()

    def submission_comes(path: str) -> bool:
        folder.mkdir()
        (folder / "new").write_text("")
        return False

    remove_folder(str(folder), submission_comes)
    assert names(tmp_path) == ["snapshot/new"]
    assert os.listdir(tmp_path) == ["snapshot"]
