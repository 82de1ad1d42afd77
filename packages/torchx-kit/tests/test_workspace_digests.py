"""Digests of files that are remembered between runs."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from torchx_kit.workspace import FileDigests, digests, tree_digest, workspace_files
from torchx_specs import Workspace
from torchx_specs.errors import WorkspaceError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    for name in ("a", "b", "c"):
        (root / name).write_text(name * 10)
    return root


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return tmp_path / "torchx"


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as old: nobody can set back when a file's details have changed."""
    monkeypatch.setattr(digests, "RACY_SECONDS", -60.0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    names: list[str] = []
    original = FileDigests._read

    def noted(self: FileDigests, source: str) -> bytes:
        names.append(os.path.basename(source))
        return original(self, source)

    monkeypatch.setattr(FileDigests, "_read", noted)
    return names


def look(project: Path, save: bool = True) -> str:
    workspace = Workspace({str(project): ""})
    known = FileDigests.of(workspace)
    found = tree_digest(workspace_files(workspace), known)
    if save:
        known.save()
    assert found == tree_digest(workspace_files(workspace))  # which remembers nothing
    return found


def kept(home: Path) -> list[Path]:
    return sorted(home.glob("cache/digests/*"))


@pytest.mark.usefixtures("old")
def test_a_file_is_read_once(project: Path, read: list[str]) -> None:
    first = look(project)
    assert read == ["a", "b", "c"] * 2
    read.clear()
    assert look(project) == first
    assert read == ["a", "b", "c"]  # by the one that remembers nothing


@pytest.mark.usefixtures("old")
def test_a_change_is_seen_whatever_it_keeps(project: Path, read: list[str]) -> None:
    first = look(project)
    before = (project / "b").stat()
    (project / "b").write_text("B" * 10)
    os.utime(project / "b", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (project / "b").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    read.clear()
    second = look(project)
    assert second != first
    assert read == ["b", "a", "b", "c"]
    (project / "new").write_text("b" * 10)
    os.replace(project / "new", project / "b")
    assert look(project) == first


def test_a_young_file_is_not_trusted(project: Path, home: Path, read: list[str]) -> None:
    look(project)
    assert kept(home) == []
    (project / "a").write_text("A" * 10)  # perhaps within one tick of the clock
    read.clear()
    look(project)
    assert read == ["a", "b", "c"] * 2


@pytest.mark.usefixtures("old")
def test_a_file_that_changes_while_it_is_read_is_not_kept(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hash:
        """hashlib.sha256, and somebody who writes meanwhile."""

        def __init__(self) -> None:
            self._real = real()

        def update(self, data: bytes) -> None:
            self._real.update(data)
            os.utime(project / "a")

        def digest(self) -> bytes:
            return self._real.digest()

    real = hashlib.sha256
    known = FileDigests(str(home / "file"))
    (entry, *_) = workspace_files(Workspace({str(project): ""}))
    with monkeypatch.context() as context:
        context.setattr(hashlib, "sha256", Hash)
        assert known.digest(entry) == real(b"a" * 10).digest()
    known.save()
    assert not (home / "file").exists()


@pytest.mark.usefixtures("old")
def test_only_saving_writes_and_only_for_the_user(project: Path, home: Path) -> None:
    look(project, save=False)
    assert not home.exists()
    look(project)
    (path,) = kept(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    written = path.stat().st_mtime_ns
    look(project)
    assert path.stat().st_mtime_ns == written  # nothing new


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("harm", ["cut", "bit", "writable", "other"])
def test_what_is_not_whole_or_not_ones_own_is_not_used(
    project: Path, home: Path, read: list[str], harm: str
) -> None:
    look(project)
    (path,) = kept(home)
    data = path.read_bytes()
    if harm == "cut":
        path.write_bytes(data[:-72])
    elif harm == "bit":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif harm == "other":
        path.write_bytes(b"something else")
    else:
        path.chmod(0o666)
    read.clear()
    look(project)
    assert read == ["a", "b", "c"] * 2


@pytest.mark.usefixtures("old")
def test_what_is_kept_is_bounded(
    project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MOST_FILES", 2)
    monkeypatch.setattr(digests, "MOST_WORKSPACES", 3)
    for number in range(5):
        (tmp_path / f"w{number}").mkdir()
        (tmp_path / f"w{number}" / "file").write_text("x")
        look(tmp_path / f"w{number}")
    assert len(kept(home)) == 3
    look(project)
    (tmp_path / "w0" / "file").unlink()
    sizes = {path.stat().st_size for path in kept(home)}
    assert max(sizes) == min(sizes) + 72
    (project / "a").unlink()
    (project / "b").unlink()
    (project / "c").write_text("new")
    look(project)  # those of files that are gone are forgotten
    assert {path.stat().st_size for path in kept(home)} == {min(sizes)}


def test_a_home_that_cannot_be_written_is_no_error(
    project: Path, monkeypatch: pytest.MonkeyPatch, old: None
) -> None:
    monkeypatch.setenv("TORCHX_HOME", "/proc/none")
    assert look(project) == look(project)


def test_a_file_that_is_gone(project: Path) -> None:
    files = workspace_files(Workspace({str(project): ""}))
    (project / "b").unlink()
    with pytest.raises(WorkspaceError, match=r"cannot read .*/b of the workspace"):
        tree_digest(files, FileDigests())


def test_many_processes_at_once(project: Path, home: Path) -> None:
    script = """
import sys
from torchx_specs import Workspace
from torchx_kit.workspace import FileDigests
from torchx_kit.workspace import digests
from torchx_kit.workspace import tree_digest
from torchx_kit.workspace import workspace_files
digests.RACY_SECONDS = -60
workspace = Workspace({sys.argv[1]: ""})
files = workspace_files(workspace)
for _ in range(100):
    known = FileDigests.of(workspace)
    print(tree_digest(files, known))
    known._changed = True
    known.save()
"""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(project)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    said = [run.communicate()[0] for run in runs]
    expected = tree_digest(workspace_files(Workspace({str(project): ""})))
    assert said == [f"{expected}\n" * 100] * 4
    assert [run.returncode for run in runs] == [0] * 4
    (path,) = kept(home)
    assert len(digests._load(str(path))) == 3


def test_many_bytes_are_read_in_threads_with_the_same_result(
    project: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        (project / f"more{number}").write_bytes(b"%d" % number * number)
    (project / "link").symlink_to("a")
    files = workspace_files(Workspace({str(project): ""}))
    expected = [
        b"" if f.link else hashlib.sha256(Path(f.source).read_bytes()).digest() for f in files
    ]
    assert FileDigests().digests(files) == expected
    monkeypatch.setattr(digests, "_WORTH_THREADS", 1)
    monkeypatch.setattr(digests, "_WORTH_THREADS_EACH", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    read.clear()
    assert FileDigests().digests(files) == expected
    assert len(read) == len(files) - 1
    (project / "more7").unlink()
    with pytest.raises(WorkspaceError, match=r"cannot read .*more7"):
        FileDigests().digests(files)


@pytest.mark.usefixtures("old")
def test_what_was_just_found_is_not_asked_for_again(
    project: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = look(project)
    read.clear()
    known = FileDigests.of(workspace := Workspace({str(project): ""}))
    files = workspace_files(workspace)
    asked: list[object] = []
    stat_of = os.stat

    def noted(path: str, **how: object) -> os.stat_result:
        asked.append(path)
        return stat_of(path, **how)  # type: ignore[call-overload,no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", noted)
        assert tree_digest(files, known, just_found=True) == first
    assert (asked, read) == ([], [])
    (project / "b").write_text("changed")
    assert tree_digest(files, known, just_found=True) == first  # as it was found
    assert read == []
    assert tree_digest(files, known) != first
    assert read == ["b"]


@pytest.mark.usefixtures("old")
def test_what_changes_after_it_was_found_is_read(project: Path, read: list[str]) -> None:
    look(project)
    (project / "b").write_text("changed")
    read.clear()
    known = FileDigests.of(workspace := Workspace({str(project): ""}))
    assert tree_digest(workspace_files(workspace), known, just_found=True) == look(project)
    assert read[0] == "b"
