"""Tests of the program copy: of destinations, directories, links and failures."""

from __future__ import annotations

import errno
import io
import os
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from torchx_apps.copy import copy, main, parse_args
from torchx_apps.locations import LocationError
from torchx_apps.program import ProgramError

CONTENT = bytes(range(256)) * 300  # longer than one buffer


@pytest.fixture(autouse=True)
def memory() -> Iterator[MemoryFileSystem]:
    """Yield fsspec's in-memory file system, which is global in the process; empty it afterwards."""
    fs = fsspec.filesystem("memory")
    yield fs
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]


@pytest.fixture(autouse=True)
def cwd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(root: Path) -> dict[str, bytes | None]:
    """Return every path below ``root`` with the content of a file, or None for a directory."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


def write_tree(root: Path, files: dict[str, bytes | None]) -> None:
    for name, content in files.items():
        path = root / name
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


class FailingReadMock(io.BytesIO):
    """A file that returns half of its content, and then raises an I/O error."""

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() >= len(CONTENT) // 2:
            raise OSError(errno.EIO, "the disk is on fire")
        return super().read(len(CONTENT) // 2)


class FailingMockFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A file system in which every path is a file that cannot be read to its end."""

    protocol = "failingmock"
    cachable = False

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return {"name": path, "type": "file", "size": len(CONTENT)}

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return FailingReadMock(CONTENT)


class UploadMockFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that exists only after its upload is completed, as in an object store."""

    def _initiate_upload(self) -> None:
        self.parts = b""

    def _upload_chunk(self, final: bool = False) -> bool:
        self.parts += self.buffer.getvalue()
        if final:
            UploadMockFileSystem.objects[self.path] = self.parts
        return True


class UploadMockFileSystem(AbstractFileSystem):  # type: ignore[misc]
    protocol = "uploadmock"
    cachable = False
    objects: dict[str, bytes] = {}

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if path in self.objects:
            return {"name": path, "type": "file", "size": len(self.objects[path])}
        raise FileNotFoundError(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        pass

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        return UploadMockFile(self, path, mode, block_size=5)


@pytest.fixture
def mocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (FailingMockFileSystem, UploadMockFileSystem):
        fsspec.register_implementation(str(one.protocol), one, clobber=True)
    monkeypatch.setattr(UploadMockFileSystem, "objects", {})


@pytest.mark.parametrize(
    ("dst", "lands"),
    [
        ("copy", "copy"),  # relative, without a folder
        ("./copy", "copy"),
        ("a/b/copy", "a/b/copy"),
        ("folder", "folder/src"),
        ("folder/", "folder/src"),
        ("not/there/", "not/there/src"),
        ("file://{cwd}/with space/ü", "with space/ü"),
        ("{cwd}/copy", "copy"),
        ("existing", "existing"),
    ],
)
def test_destination_of_a_file(dst: str, lands: str, cwd: Path) -> None:
    (cwd / "src").write_bytes(CONTENT)
    (cwd / "folder").mkdir()
    (cwd / "existing").write_bytes(b"old and longer" * 10000)
    copied = copy("src", dst.format(cwd=cwd))
    assert (cwd / lands).read_bytes() == CONTENT
    assert (copied.files, copied.size) == (1, len(CONTENT))
    assert [name for name in tree(cwd) if ".part" in name] == []


@pytest.mark.parametrize("content", [b"", b"x", CONTENT])
@pytest.mark.parametrize("bufsize", [1, 65536])
def test_file_is_copied_between_file_systems(
    content: bytes, bufsize: int, cwd: Path, memory: MemoryFileSystem
) -> None:
    (cwd / "src").write_bytes(content)
    copy("src", "memory://deep/er/x", bufsize)
    copy("memory://deep/er/x", "memory://y", bufsize)
    copy("memory://y", "back", bufsize)
    assert memory.cat_file("/deep/er/x") == content
    assert (cwd / "back").read_bytes() == content


def test_copy_within_a_file_system_transfers_no_data(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe_file("/x", CONTENT)
    monkeypatch.setattr(memory, "open", None)  # reading or writing data would fail
    assert copy("memory://x", "memory://folder/y").size == len(CONTENT)
    assert memory.cat_file("/folder/y") == CONTENT


TREE: dict[str, bytes | None] = {
    "top": b"1",
    "a/one": CONTENT,
    "a/b/two": b"",
    "a/b/with space, ünï$`\"'": b"3",
    ".hidden/.x": b"4",
}


@pytest.mark.parametrize("dst", ["out", "out/", "deep/er/out"])
def test_directory_is_copied_completely(dst: str, cwd: Path) -> None:
    write_tree(cwd / "src", {**TREE, "empty/folder": None})
    copied = copy("src", dst)
    assert tree(cwd / dst) == tree(cwd / "src")
    assert (copied.files, copied.size) == (5, len(CONTENT) + 3)


def test_directory_is_copied_between_file_systems(cwd: Path) -> None:
    write_tree(cwd / "src", TREE)
    copy("src", "memory://one")
    copy("memory://one", "memory://two/three/")
    copy("memory://two/three", "out")
    assert tree(cwd / "out") == tree(cwd / "src")


def test_directory_is_merged_into_an_existing_one(cwd: Path) -> None:
    write_tree(cwd / "src", {"a/new": b"new", "a/both": b"new"})
    write_tree(cwd / "out", {"a/old": b"old", "a/both": b"old"})
    for _ in range(2):
        copy("src", "out")
        assert tree(cwd / "out") == {
            "a": None,
            "a/new": b"new",
            "a/old": b"old",
            "a/both": b"new",
        }


def test_archive_is_unpacked(cwd: Path) -> None:
    with zipfile.ZipFile(cwd / "x.zip", "w") as archive:
        archive.writestr("top", "1")
        archive.writestr("a/b/two", "2")
    copy("zip://::x.zip", "out")
    assert tree(cwd / "out") == {"top": b"1", "a": None, "a/b": None, "a/b/two": b"2"}


def test_archive_cannot_write_outside(cwd: Path) -> None:
    with zipfile.ZipFile(cwd / "x.zip", "w") as archive:
        archive.writestr("innocent", "1")
        archive.writestr("../../escaped", "2")
    with pytest.raises(LocationError, match=r"'\.\.' is not a path below"):
        copy("zip://::x.zip", "a/b/out")
    assert set(tree(cwd)) == {"x.zip"}


def test_links_are_followed(cwd: Path) -> None:
    write_tree(cwd, {"elsewhere/x": b"x", "file": b"f", "src/real": b"r"})
    (cwd / "src/folder").symlink_to(cwd / "elsewhere")
    (cwd / "src/link").symlink_to("../file")
    copy("src", "out")
    assert tree(cwd / "out") == {"real": b"r", "folder": None, "folder/x": b"x", "link": b"f"}
    assert not any(path.is_symlink() for path in (cwd / "out").rglob("*"))


def test_link_at_the_destination_is_followed(cwd: Path) -> None:
    write_tree(cwd, {"src": b"new", "real/target": b"old"})
    (cwd / "link").symlink_to("real/target")
    copy("src", "link")
    assert (cwd / "link").is_symlink()
    assert (cwd / "real/target").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("source_mode", "old_mode", "expected"),
    [(0o755, None, 0o755), (0o600, None, 0o600), (0o777, None, 0o755), (0o755, 0o640, 0o640)],
)
def test_permissions_equal_those_of_cp(
    source_mode: int, old_mode: int | None, expected: int, cwd: Path
) -> None:
    (cwd / "src").write_bytes(b"x")
    (cwd / "src").chmod(source_mode)
    if old_mode is not None:
        (cwd / "dst").touch()
        (cwd / "dst").chmod(old_mode)
    before = os.umask(0o022)
    try:
        copy("src", "dst")
    finally:
        os.umask(before)
    assert stat.S_IMODE((cwd / "dst").stat().st_mode) == expected


def test_named_pipe_is_written_to(cwd: Path) -> None:
    (cwd / "src").write_bytes(b"through the pipe")
    os.mkfifo(cwd / "pipe")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append((cwd / "pipe").read_bytes()))
    reader.start()
    copy("src", "pipe")
    reader.join(120)
    assert received == [b"through the pipe"]
    assert (cwd / "pipe").is_fifo()


def test_special_files_are_skipped(cwd: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_tree(cwd, {"src/x": b"x"})
    os.mkfifo(cwd / "src/pipe")
    assert copy("src", "out").files == 1
    assert tree(cwd / "out") == {"x": b"x"}
    assert "src/pipe: not a file or directory" in capfd.readouterr().err


@pytest.mark.usefixtures("mocks")
@pytest.mark.parametrize("old", [None, b"what was there"])
@pytest.mark.parametrize("dst", ["dst", "memory://dst", "uploadmock://dst"])
def test_failure_leaves_no_incomplete_file(
    dst: str, old: bytes | None, cwd: Path, memory: MemoryFileSystem
) -> None:
    if old is not None:
        (cwd / "dst").write_bytes(old)
        UploadMockFileSystem.objects["dst"] = old
    with pytest.raises(OSError, match="on fire"):
        copy("failingmock://bad", dst)
    assert tree(cwd) == ({} if old is None else {"dst": old})
    assert UploadMockFileSystem.objects == ({} if old is None else {"dst": old})
    assert not memory.exists("/dst")


@pytest.mark.usefixtures("mocks")
def test_upload_is_completed(cwd: Path) -> None:
    (cwd / "src").write_bytes(CONTENT)
    copy("src", "uploadmock://dst")
    assert UploadMockFileSystem.objects == {"dst": CONTENT}


@pytest.mark.parametrize(
    ("src", "dst", "message"),
    [
        ("nope", "x", "no such file or directory: nope"),
        ("memory://nope", "x", "no such file or directory: memory://nope"),
        ("", "x", "the URL is empty"),
        ("file", "", "the URL is empty"),
        ("file", "file", "same file"),
        ("file", "./folder/../file", "same file"),
        ("file", "link", "same file"),
        ("file", ".", "same file"),
        ("folder", "folder", "into itself"),
        ("folder", "folder/below/it", "into itself"),
        ("folder", "folderlink/below", "into itself"),
        ("folder", "file", "over the file"),
        ("loop", "x", "points to one of its parent directories"),
        ("s4://bucket/x", "x", "Protocol not known"),
        ("memry://x", "x", "did you mean memory://"),
    ],
)
def test_invalid_source_or_destination_is_an_error(
    src: str, dst: str, message: str, cwd: Path
) -> None:
    write_tree(cwd, {"file": b"f", "folder/x": b"x", "loop/in/x": b"x"})
    (cwd / "link").symlink_to("file")
    (cwd / "folderlink").symlink_to("folder")
    (cwd / "loop/in/again").symlink_to("..")
    before = tree(cwd)
    with pytest.raises(ProgramError, match=message):
        copy(src, dst)
    assert tree(cwd) == before


def test_broken_link_is_an_error_with_its_name(cwd: Path) -> None:
    write_tree(cwd, {"src/a": b"a"})
    (cwd / "src/broken").symlink_to("nowhere")
    with pytest.raises(FileNotFoundError, match="src/broken"):
        copy("src", "out")
    assert not (cwd / "out").exists()


def test_directory_with_a_common_prefix_is_not_inside(cwd: Path) -> None:
    write_tree(cwd, {"run/x": b"x"})
    copy("run", "run2")
    assert tree(cwd / "run2") == {"x": b"x"}


def test_main_prints_copied_files(cwd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(cwd, {"src/a": b"aa", "src/b": b"b"})
    main(["--src", "src", "--dst", "out"])
    assert capsys.readouterr().out.splitlines() == [
        "copying from src to out",
        f"{cwd}/src/a -> {cwd}/out/a (2 B)",
        f"{cwd}/src/b -> {cwd}/out/b (1 B)",
        "copied 2 files, 3 B",
    ]


def test_parse_args() -> None:
    assert vars(parse_args(["--src", "a", "--dst", "b"])) == {
        "src": "a",
        "dst": "b",
        "bufsize": 65536,
    }


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["--src", "a"], 2, "--dst"),
        (["--src", "a", "--dst", "b", "--bufsize", "0"], 2, "must be greater than 0"),
        (["--src", "a", "--dst", "b", "--bufsize", "x"], 2, "expected an integer, got 'x'"),
        (["--src", "a", "--dst", "b", "--nope"], 2, "--nope"),
        (["--src", "a", "--dst", "b"], 1, "no such file or directory: a"),
        (["--src", __file__, "--dst", "/proc/nope/x"], 1, "/proc/nope"),
    ],
)
def test_process_prints_errors_on_one_line(argv: list[str], code: int, message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchx_apps.copy", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("torchx_apps.copy: error: ")
    assert message in done.stderr


def test_process_prints_names_that_are_not_utf8(cwd: Path) -> None:
    os.mkdir("src")
    with open(b"src/\xff\xfe", "wb") as file:
        file.write(b"x")
    done = subprocess.run(
        [sys.executable, "-m", "torchx_apps.copy", "--src", "src", "--dst", "out"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(b"out") == [b"\xff\xfe"]
