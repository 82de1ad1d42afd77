"""Tests of the detection of torchx, which determines the modules that components run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchx_components.app_programs import _has_facade


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that is the only import path, with torchx not imported."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        sys, "meta_path", [one for one in sys.meta_path if "PathFinder" in repr(one)]
    )
    monkeypatch.delitem(sys.modules, "torchx", raising=False)
    return tmp_path


def test_has_facade_is_false_without_torchx(path: Path) -> None:
    assert not _has_facade()


def test_has_facade_is_true_with_torchx(path: Path) -> None:
    (path / "torchx").mkdir()
    (path / "torchx/__init__.py").touch()
    assert _has_facade()


def test_has_facade_is_false_for_a_plain_directory(path: Path) -> None:
    (path / "torchx").mkdir()
    assert not _has_facade()


def test_has_facade_is_true_for_a_module_without_specification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = type(sys)("torchx")
    monkeypatch.setitem(sys.modules, "torchx", module)
    assert module.__spec__ is None
    assert _has_facade()
