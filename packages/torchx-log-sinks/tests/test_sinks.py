"""Tests that the log sinks store, replace, read and list data."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from torchx_log_sinks.sinks import FolderSink, FsspecSink
from torchx_specs.errors import RequestError
from torchx_specs.plugins.manager import PluginManager

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import LogSink

MAKE: dict[str, Callable[[Path], LogSink]] = {
    "folder": lambda path: FolderSink(f"file://{path}/logs"),
    "fsspec files": lambda path: FsspecSink(f"local://{path}/logs"),
    "fsspec memory": lambda path: FsspecSink(f"memory://{uuid4().hex}/logs"),
}


@pytest.fixture(params=MAKE, ids=MAKE)
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> LogSink:
    return MAKE[request.param](tmp_path)


def test_data_is_stored_replaced_read_and_listed(sink: LogSink) -> None:
    assert list(sink.list("a")) == []
    for data in (b"first", b"\x00second\xff", b""):
        sink.write("a/b/1.log", data)
        assert sink.read("a/b/1.log") == data
    sink.write("a/2.log", b"x")
    sink.write("ab/3.log", b"x")
    assert sorted(sink.list("a")) == ["a/2.log", "a/b/1.log"]
    assert list(sink.list("a/b")) == ["a/b/1.log"]


def test_missing_name_is_a_file_not_found_error(sink: LogSink) -> None:
    with pytest.raises(FileNotFoundError):
        sink.read("a/b")


def test_only_this_user_can_read_the_files(tmp_path: Path) -> None:
    FolderSink(f"file://{tmp_path}/logs").write("a/b", b"x")
    assert stat.S_IMODE(os.stat(tmp_path / "logs" / "a").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "logs" / "a" / "b").st_mode) == 0o600


def test_interrupted_write_keeps_the_old_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FolderSink(f"file://{tmp_path}")
    sink.write("a/b", b"old")

    def interrupted(*args: object, **folders: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sink.write("a/b", b"new")
    assert sink.read("a/b") == b"old"
    assert os.listdir(tmp_path / "a") == ["b"]


@pytest.mark.parametrize("name", ["../x", "a//b", "/etc/passwd", "a/./b", ""])
def test_names_stay_in_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name in a log sink"):
        FolderSink(f"file://{tmp_path}").write(name, b"x")


@pytest.mark.parametrize("url", ["file://relative/path", "file://", "file:///a?b"])
def test_url_without_an_absolute_path_is_refused(url: str) -> None:
    with pytest.raises(RequestError, match="is not a URL of a folder"):
        FolderSink(url)


def test_home_directory_and_quoted_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    FolderSink("file://~/my%20logs").write("a", b"x")
    assert (tmp_path / "my logs" / "a").read_bytes() == b"x"


def test_unknown_scheme_is_one_line_without_the_password() -> None:
    sink = FsspecSink("nosuch://user:hunter2@host/x")
    with pytest.raises(RequestError) as caught:
        sink.write("a", b"x")
    assert "hunter2" not in str(caught.value)
    assert "nosuch" in str(caught.value)


def test_sinks_are_found_by_their_schemes() -> None:
    sinks = PluginManager().log_sinks()
    assert sinks["file"].load() is FolderSink
    assert sinks["fsspec"].load() is FsspecSink
