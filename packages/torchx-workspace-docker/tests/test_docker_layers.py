"""Tests of archives, of layers, and of the build cache."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from torchx_kit.workspace import FileDigests, WorkspaceFile, workspace_files
from torchx_specs.workspace import Workspace
from torchx_workspace_docker import build_cache
from torchx_workspace_docker.archive import tar_chunks, tar_header, tar_size
from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.builder import DockerBuilder
from torchx_workspace_docker.layer import layer_contents, make_layer, split_into_layers


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return tmp_path / "torchx"


def files_of_size(count: int, size: int) -> list[WorkspaceFile]:
    return [WorkspaceFile(f"d{i % 9}/f{i}", f"/none/{i}", size, 0o644) for i in range(count)]


def test_number_of_layers_depends_on_the_size_of_the_workspace() -> None:
    assert len(split_into_layers([])) == 1
    assert len(split_into_layers(files_of_size(100, 100_000))) == 1
    assert len(split_into_layers(files_of_size(100, 400_000))) == 4
    assert len(split_into_layers(files_of_size(1000, 10_000_000))) == 8


def test_change_of_one_file_changes_few_layers() -> None:
    files = files_of_size(100, 1_000_000)
    before = split_into_layers(files)
    assert sorted(entry for layer in before for entry in layer) == sorted(files)
    assert all([e.path for e in layer] == [f.path for f in files if f in layer] for layer in before)
    files[7] = files[7]._replace(size=5)
    files.insert(8, files[7]._replace(path="another"))
    after = split_into_layers(files)
    assert sum(layer not in before for layer in after) in (1, 2)


def test_archive_is_readable_and_has_the_computed_size(tmp_path: Path) -> None:
    root = tmp_path / "work"
    deep = root / ("x" * 120) / ("y" * 120)
    deep.mkdir(parents=True)
    (deep / "ünïcode").write_bytes(os.urandom(3 << 20))
    (root / os.fsdecode(b"\xff")).write_text("not UTF-8")
    (root / "empty").touch()
    (root / "block").write_bytes(b"b" * 512)
    (root / "link").symlink_to("block")
    files = workspace_files(Workspace({str(root): ""}))
    data = b"".join(tar_chunks(files, "/app/deep"))
    assert len(data) == tar_size(files, "/app/deep")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = {member.name: member for member in archive}
        for entry in files:
            member = members[f"app/deep/{entry.path}"]
            if entry.link is None:
                content = archive.extractfile(member)
                assert content is not None
                assert content.read() == Path(entry.source).read_bytes()
            else:
                assert (member.issym(), member.linkname) == (True, entry.link)
    # An engine loads an image from an archive that contains the archive of the layer.
    outer = tar_header("inner.tar", len(data)) + data + b"".join(tar_chunks((), "", {"x": b"1"}))
    with tarfile.open(fileobj=io.BytesIO(outer)) as archive:
        assert [(m.name, m.size) for m in archive] == [("inner.tar", len(data)), ("x", 1)]


def test_layer_contents_hold_modes_digests_and_links_but_no_times(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to("a")

    def contents() -> dict[str, str]:
        return layer_contents(workspace_files(Workspace({str(tmp_path): ""})), FileDigests())

    first = contents()
    assert first["link"] == "-> a"
    os.utime(tmp_path / "a", (1, 1))
    assert contents() == first
    (tmp_path / "a").chmod(0o755)
    assert contents() != first


def test_plan_writes_no_file(tmp_path: Path, home: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("x")
    cfg = {"image_repo": "example.com/jobs"}
    DockerBuilder().plan("base", Workspace({str(tmp_path / "work"): ""}), cfg)
    assert not home.exists()


def test_build_cache_ignores_damaged_entries_and_deletes_the_oldest(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recall("layers", "key") is None
    remember("layers", "key", {"digest": "sha256:1"})
    assert recall("layers", "key") == {"digest": "sha256:1"}
    assert recall("images", "key") is None
    (path,) = (home / "cache" / "layers").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    for damaged in (data[:-1], data.replace(b"sha256:1", b"sha256:2"), b"", b"\xff\n{"):
        path.write_bytes(damaged)
        assert recall("layers", "key") is None
    path.write_bytes(data)
    path.chmod(0o606)
    assert recall("layers", "key") is None
    monkeypatch.setitem(build_cache.MAX_ENTRIES, "layers", 3)
    for number in range(6):
        remember("layers", str(number), {})
        # The cache deletes the entries with the oldest times. Make all times different.
        for at, kept in enumerate(sorted((home / "cache" / "layers").iterdir())):
            os.utime(kept, (at, at))
    assert len(list((home / "cache" / "layers").iterdir())) == 3
    monkeypatch.setenv("TORCHX_HOME", "/proc/none")
    remember("layers", "key", {})
    assert recall("layers", "key") is None


def test_layers_of_the_same_files_have_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for number in range(5):
        (tmp_path / "work" / f"f{number}").write_bytes(os.urandom(700_000))
    files = workspace_files(Workspace({str(tmp_path / "work"): ""}))
    made = [make_layer(files, "/", str(tmp_path / str(number))) for number in range(2)]
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert made[0].digest == made[1].digest


def test_archive_has_known_bytes(tmp_path: Path) -> None:
    """Check the digest of an archive: if it changes, every workspace is uploaded again."""
    (tmp_path / "work" / "d").mkdir(parents=True)
    (tmp_path / "work" / "d" / ("n" * 101)).write_text("long name")
    (tmp_path / "work" / "run").write_text("#!/bin/sh\n")
    (tmp_path / "work" / "run").chmod(0o755)
    (tmp_path / "work" / "link").symlink_to("run")
    (tmp_path / "work" / "ünïcode").write_text("not ASCII")
    for path in (tmp_path / "work" / "d" / ("n" * 101), tmp_path / "work" / "ünïcode"):
        path.chmod(0o644)
    files = workspace_files(Workspace({str(tmp_path / "work"): ""}))
    data = b"".join(tar_chunks(files, "/app"))
    assert (
        hashlib.sha256(data).hexdigest()
        == "72bc5d80df69470a81bea422a151c32a80ff3babe2d544336a37890d98f1550b"
    )
