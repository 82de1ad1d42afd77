"""Tests of the cache of file digests."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from torchx_kit.workspace import (
    FileDigests,
    WorkspaceFile,
    digests,
    tree_digest,
    workspace_files,
)
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
    """Treat every file as old, because a test cannot set the time of a file's status change."""
    monkeypatch.setattr(digests, "RACY_SECONDS", -60.0)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each file is added when the file is read."""
    names: list[str] = []
    original = FileDigests._read

    def noted(self: FileDigests, entry: WorkspaceFile) -> bytes:
        names.append(os.path.basename(entry.source))
        return original(self, entry)

    monkeypatch.setattr(FileDigests, "_read", noted)
    return names


def cached_digest(project: Path, save: bool = True) -> str:
    workspace = Workspace({str(project): ""})
    known = FileDigests.for_workspace(workspace)
    found = tree_digest(workspace_files(workspace), known)
    if save:
        known.save()
    assert found == tree_digest(workspace_files(workspace))  # Computed without a cache.
    return found


def cache_files(home: Path) -> list[Path]:
    return sorted(home.glob("cache/digests/*"))


@pytest.mark.usefixtures("old")
def test_file_is_read_once(project: Path, read: list[str]) -> None:
    first = cached_digest(project)
    assert read == ["a", "b", "c"] * 2
    read.clear()
    assert cached_digest(project) == first
    assert read == ["a", "b", "c"]  # These files are read without a cache.


@pytest.mark.usefixtures("old")
def test_change_is_detected_even_if_size_and_time_stay_the_same(
    project: Path, read: list[str]
) -> None:
    first = cached_digest(project)
    before = (project / "b").stat()
    (project / "b").write_text("B" * 10)
    os.utime(project / "b", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = (project / "b").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    read.clear()
    second = cached_digest(project)
    assert second != first
    assert read == ["b", "a", "b", "c"]
    (project / "new").write_text("b" * 10)
    os.replace(project / "new", project / "b")
    assert cached_digest(project) == first


def test_digest_of_a_recently_changed_file_is_not_cached(
    project: Path, home: Path, read: list[str]
) -> None:
    cached_digest(project)
    assert cache_files(home) == []
    (project / "a").write_text("A" * 10)  # Perhaps in the same tick as the first write.
    read.clear()
    cached_digest(project)
    assert read == ["a", "b", "c"] * 2


@pytest.mark.usefixtures("old")
def test_digest_of_a_file_that_changes_while_it_is_read_is_not_cached(
    project: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hash:
        """Computes a digest, and changes the file meanwhile."""

        def __init__(self) -> None:
            self._real = real()

        def update(self, data: bytes) -> None:
            self._real.update(data)
            os.utime(project / "a")

        def digest(self) -> bytes:
            return self._real.digest()

    real = hashlib.sha256
    known = FileDigests("file")
    (entry, *_) = workspace_files(Workspace({str(project): ""}))
    with monkeypatch.context() as context:
        context.setattr(hashlib, "sha256", Hash)
        assert known.digests([entry]) == [real(b"a" * 10).digest()]
    known.save()
    assert cache_files(home) == []


@pytest.mark.usefixtures("old")
def test_only_save_writes_and_only_the_user_may_read(project: Path, home: Path) -> None:
    cached_digest(project, save=False)
    assert not home.exists()
    cached_digest(project)
    (path,) = cache_files(home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    written = path.stat().st_mtime_ns
    cached_digest(project)
    assert path.stat().st_mtime_ns == written  # It is written only after changes.


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("damage", ["cut", "bit", "writable", "other"])
def test_damaged_or_writable_cache_file_is_not_used(
    project: Path, home: Path, read: list[str], damage: str
) -> None:
    cached_digest(project)
    (path,) = cache_files(home)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-72])
    elif damage == "bit":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "other":
        path.write_bytes(b"something else")
    else:
        path.chmod(0o666)
    read.clear()
    cached_digest(project)
    assert read == ["a", "b", "c"] * 2


@pytest.mark.usefixtures("old")
def test_number_of_cached_files_and_workspaces_is_limited(
    project: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MAX_FILES", 2)
    monkeypatch.setattr(digests, "MAX_WORKSPACES", 3)
    for number in range(5):
        (tmp_path / f"w{number}").mkdir()
        (tmp_path / f"w{number}" / "file").write_text("x")
        cached_digest(tmp_path / f"w{number}")
    assert len(cache_files(home)) == 3
    cached_digest(project)
    (tmp_path / "w0" / "file").unlink()
    sizes = {path.stat().st_size for path in cache_files(home)}
    assert max(sizes) == min(sizes) + 72
    (project / "a").unlink()
    (project / "b").unlink()
    (project / "c").write_text("new")
    cached_digest(project)  # Digests of deleted files are removed.
    assert {path.stat().st_size for path in cache_files(home)} == {min(sizes)}


def test_home_that_is_not_writable_is_not_an_error(
    project: Path, monkeypatch: pytest.MonkeyPatch, old: None
) -> None:
    monkeypatch.setenv("TORCHX_HOME", "/proc/none")
    assert cached_digest(project) == cached_digest(project)


def test_deleted_file_is_an_error(project: Path) -> None:
    files = workspace_files(Workspace({str(project): ""}))
    (project / "b").unlink()
    with pytest.raises(WorkspaceError, match=r"cannot read .*/b of the workspace"):
        tree_digest(files, FileDigests())


def test_processes_may_share_a_cache_file(project: Path, home: Path) -> None:
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
    known = FileDigests.for_workspace(workspace)
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
    outputs = [run.communicate()[0] for run in runs]
    expected = tree_digest(workspace_files(Workspace({str(project): ""})))
    assert outputs == [f"{expected}\n" * 100] * 4
    assert [run.returncode for run in runs] == [0] * 4
    assert len(cache_files(home)) == 1
    assert len(FileDigests(str(project))._known) == 3


def test_threads_compute_the_same_digests(
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
    monkeypatch.setattr(digests, "_MIN_PARALLEL_TOTAL", 1)
    monkeypatch.setattr(digests, "_MIN_PARALLEL_AVERAGE", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    read.clear()
    assert FileDigests().digests(files) == expected
    assert len(read) == len(files) - 1
    (project / "more7").unlink()
    with pytest.raises(WorkspaceError, match=r"cannot read .*more7"):
        FileDigests().digests(files)


@pytest.mark.usefixtures("old")
def test_cached_digests_need_no_query_of_the_file_system(
    project: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cached_digest(project)
    read.clear()
    known = FileDigests.for_workspace(workspace := Workspace({str(project): ""}))
    files = workspace_files(workspace)
    queried: list[object] = []
    stat_of = os.stat

    def noted(path: str, **how: object) -> os.stat_result:
        queried.append(path)
        return stat_of(path, **how)  # type: ignore[call-overload,no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", noted)
        assert tree_digest(files, known) == first
    assert (queried, read) == ([], [])
    (project / "b").write_text("changed")
    assert tree_digest(files, known) == first  # The status when listed.
    assert read == []
    assert tree_digest(workspace_files(workspace), known) != first
    assert read == ["b"]


@pytest.mark.usefixtures("old")
def test_file_changed_before_the_listing_is_read(project: Path, read: list[str]) -> None:
    cached_digest(project)
    (project / "b").write_text("changed")
    read.clear()
    known = FileDigests.for_workspace(workspace := Workspace({str(project): ""}))
    assert tree_digest(workspace_files(workspace), known) == cached_digest(project)
    assert read[0] == "b"
