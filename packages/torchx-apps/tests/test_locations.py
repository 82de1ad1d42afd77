"""Tests of locations: of untrusted relative paths, URLs and new directories."""

from __future__ import annotations

import os
import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_apps.locations import Location, LocationError, join_below

NAMES = st.text(st.sampled_from("ab./\\~ \x00é"), max_size=12)


@given(NAMES)
def test_join_below_rejects_paths_that_leave_the_base(relative: str) -> None:
    try:
        path = join_below("/base", relative)
    except LocationError:
        assert posixpath.normpath(f"/base/{relative}") != f"/base/{relative}"
    else:
        assert path == posixpath.normpath(path)
        assert path.startswith("/base/")


@pytest.mark.parametrize(
    ("base", "expected"),
    [("", "a/b"), ("/", "/a/b"), ("bucket", "bucket/a/b"), ("/base/", "/base/a/b")],
)
def test_join_below(base: str, expected: str) -> None:
    assert join_below(base, "a/b") == expected


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("a", f"{os.getcwd()}/a"),
        ("memory://a/b", "memory:///a/b"),
    ],
)
def test_location_prints_like_its_url(url: str, text: str) -> None:
    assert str(Location.of(url)) == text


def test_missing_library_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.registry import known_implementations

    absent = {"class": "no_such_library.Nope", "err": "Install no_such_library to access nope"}
    monkeypatch.setitem(known_implementations, "nope", absent)
    with pytest.raises(LocationError, match="nope://x: Install no_such_library to access nope"):
        Location.of("nope://x")


@pytest.mark.parametrize("protocol", ["s3", ("gs", "gcs"), ("abfs", "az")])
def test_make_folder_creates_no_bucket(protocol: str | tuple[str, ...]) -> None:
    from fsspec.spec import AbstractFileSystem

    class BucketMockFileSystem(AbstractFileSystem):  # type: ignore[misc]
        cachable = False

        def makedirs(self, path: str, exist_ok: bool = False) -> None:
            raise AssertionError(f"made {path}")

    BucketMockFileSystem.protocol = protocol
    Location(BucketMockFileSystem(), "typo/folder").make_folder()
