"""Tests of atomic writes of files."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from torchx_kit.atomic_files import write_atomically


def test_text_and_bytes_are_written(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    write_atomically(path, "caf\xe9 \udcff\n")
    assert Path(path).read_bytes() == b"caf\xc3\xa9 \xff\n"
    write_atomically(path, b"\0\1")
    assert Path(path).read_bytes() == b"\0\1"
    assert os.listdir(tmp_path) == ["file"]


def test_file_is_private_unless_a_mode_is_given(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_atomically(str(tmp_path / "secret"), "")
        write_atomically(str(tmp_path / "public"), "", 0o666)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("secret", "public")]
    assert modes == [0o600, 0o644]


def test_failed_write_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "folder" / "below").mkdir(parents=True)
    with pytest.raises(OSError, match=r"folder"):
        write_atomically(str(tmp_path / "folder"), "text")
    assert os.listdir(tmp_path) == ["folder"]
    (tmp_path / "file").write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(str(tmp_path / "file"), "\ud800")
    assert (tmp_path / "file").read_text() == "before"


def test_readers_see_the_old_content_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [str(number) * 100_000 for number in range(4)]
    write_atomically(str(path), texts[0])
    seen: set[str] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add(path.read_text())

    def write(text: str) -> None:
        for _ in range(50):
            write_atomically(str(path), text)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    reader.start()
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stop.set()
    reader.join()
    assert seen <= set(texts)
    assert os.listdir(tmp_path) == ["file"]
