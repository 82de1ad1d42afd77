"""Tests of stored results: of the layout, which Ax and scripts of users read, and of errors."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from torchx_apps.results import FsspecResultTracker, ResultTracker


def test_layout_on_disk(tmp_path: Path) -> None:
    results = FsspecResultTracker(str(tmp_path / "not" / "there"))
    results["trial"] = {"loss": 0.5, "name": "ü"}
    written = (tmp_path / "not/there/trial").read_text()
    assert written == '{\n  "loss": 0.5,\n  "name": "\\u00fc"\n}'


@pytest.mark.parametrize("key", ["a", 0, 17, "deep/er/key", "key.json"])
def test_get_returns_the_stored_results(key: int | str, tmp_path: Path) -> None:
    results: ResultTracker = FsspecResultTracker(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an int key must not cause a deprecation warning
        results.put(key, x=1, y=0.5, z="s")
        assert results[key] == results.get(key) == {"x": 1, "y": 0.5, "z": "s"}
    assert (tmp_path / str(key)).is_file()


def test_put_replaces_results(tmp_path: Path) -> None:
    results = FsspecResultTracker(str(tmp_path))
    results["a"] = {"x": 1, "y": 2}
    results.put("a", z=3)
    assert results["a"] == {"z": 3}


def test_missing_key_has_no_results(tmp_path: Path) -> None:
    assert FsspecResultTracker(str(tmp_path))["none"] == {}
    assert FsspecResultTracker(str(tmp_path / "nor this"))["none"] == {}


def test_results_on_other_file_systems() -> None:
    results = FsspecResultTracker("memory://results/x")
    results[3] = {"a": 1}
    assert FsspecResultTracker("memory://results")["x/3"] == {"a": 1}


@pytest.mark.parametrize("key", ["", "..", "../x", "a/../../x", "/etc/passwd", "a//b", "."])
def test_key_that_leaves_the_base_is_an_error(key: str, tmp_path: Path) -> None:
    results = FsspecResultTracker(str(tmp_path / "base"))
    with pytest.raises(ValueError, match="is not a path below"):
        results.put(key, x=1)
    with pytest.raises(ValueError, match="is not a path below"):
        results.get(key)
    assert list(tmp_path.iterdir()) == []


def test_failed_put_keeps_the_stored_results(tmp_path: Path) -> None:
    results = FsspecResultTracker(str(tmp_path))
    results["a"] = {"x": 1}
    with pytest.raises(TypeError):
        results["a"] = {"x": object()}  # type: ignore[dict-item]
    assert results["a"] == {"x": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("content", ["", "{", "[1]", "3", "\x00"])
def test_damaged_file_is_an_error_with_its_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(ValueError, match=f"results in {tmp_path}/a are not"):
        FsspecResultTracker(str(tmp_path)).get("a")


def test_result_tracker_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        ResultTracker()  # type: ignore[abstract]
