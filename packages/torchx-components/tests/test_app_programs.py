"""Whether the torchx distribution is there, by which components choose a program's module."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchx_components.app_programs import _has_facade


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all there is to import from, with torchx not imported yet."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        sys, "meta_path", [one for one in sys.meta_path if "PathFinder" in repr(one)]
    )
    monkeypatch.delitem(sys.modules, "torchx", raising=False)
    return tmp_path


def test_not_installed(path: Path) -> None:
    assert not _has_facade()


def test_installed(path: Path) -> None:
    (path / "torchx").mkdir()
    (path / "torchx/__init__.py").touch()
    assert _has_facade()


def test_folder_of_that_name_is_no_distribution(path: Path) -> None:
    (path / "torchx").mkdir()
    assert not _has_facade()


def test_imported_without_a_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("torchx")
    monkeypatch.setitem(sys.modules, "torchx", module)
    assert module.__spec__ is None
    assert _has_facade()
