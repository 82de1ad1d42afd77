"""How files become layers, and what is remembered of them."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from torchx_kit.workspace import FileDigests, WorkspaceFile, workspace_files
from torchx_specs.workspace import Workspace
from torchx_workspace_docker import build_cache as remembered
from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.builder import DockerBuilder
from torchx_workspace_docker.layer import (
    layers_of,
    listing,
    make_layer,
    tar_header,
    tar_pieces,
    tar_size,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return tmp_path / "torchx"


def of_size(count: int, size: int) -> list[WorkspaceFile]:
    return [WorkspaceFile(f"d{i % 9}/f{i}", f"/none/{i}", size, 0o644) for i in range(count)]


def test_small_workspaces_are_one_layer_and_large_ones_several() -> None:
    assert len(layers_of([])) == 1
    assert len(layers_of(of_size(100, 100_000))) == 1
    assert len(layers_of(of_size(100, 400_000))) == 4
    assert len(layers_of(of_size(1000, 10_000_000))) == 8


def test_a_change_of_one_file_leaves_the_other_layers_as_they_are() -> None:
    files = of_size(100, 1_000_000)
    before = layers_of(files)
    assert sorted(entry for layer in before for entry in layer) == sorted(files)
    assert all([e.path for e in layer] == [f.path for f in files if f in layer] for layer in before)
    files[7] = files[7]._replace(size=5)
    files.insert(8, files[7]._replace(path="another"))
    after = layers_of(files)
    assert sum(layer not in before for layer in after) in (1, 2)


def test_an_archive_is_as_large_as_was_announced_and_readable(tmp_path: Path) -> None:
    root = tmp_path / "work"
    deep = root / ("x" * 120) / ("y" * 120)
    deep.mkdir(parents=True)
    (deep / "ünïcode").write_bytes(os.urandom(3 << 20))
    (root / os.fsdecode(b"\xff")).write_text("not UTF-8")
    (root / "empty").touch()
    (root / "block").write_bytes(b"b" * 512)
    (root / "link").symlink_to("block")
    files = workspace_files(Workspace({str(root): ""}))
    data = b"".join(tar_pieces(files, "/app/deep"))
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
    # an archive in an archive, as images are loaded
    outer = tar_header("inner.tar", len(data)) + data + b"".join(tar_pieces((), "", {"x": b"1"}))
    with tarfile.open(fileobj=io.BytesIO(outer)) as archive:
        assert [(m.name, m.size) for m in archive] == [("inner.tar", len(data)), ("x", 1)]


def test_what_is_listed_of_a_layer_is_all_that_matters(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "link").symlink_to("a")

    def seen() -> dict[str, str]:
        return listing(workspace_files(Workspace({str(tmp_path): ""})), FileDigests())

    first = seen()
    assert first["link"] == "-> a"
    os.utime(tmp_path / "a", (1, 1))
    assert seen() == first
    (tmp_path / "a").chmod(0o755)
    assert seen() != first


def test_a_plan_leaves_no_file(tmp_path: Path, home: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").write_text("x")
    cfg = {"image_repo": "example.com/jobs"}
    DockerBuilder().plan("base", Workspace({str(tmp_path / "work"): ""}), cfg)
    assert not home.exists()


def test_what_is_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recall("layers", "key") is None
    remember("layers", "key", {"digest": "sha256:1"})
    assert recall("layers", "key") == {"digest": "sha256:1"}
    assert recall("images", "key") is None
    (path,) = (home / "cache" / "layers").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    for harm in (data[:-1], data.replace(b"sha256:1", b"sha256:2"), b"", b"\xff\n{"):
        path.write_bytes(harm)
        assert recall("layers", "key") is None
    path.write_bytes(data)
    path.chmod(0o606)
    assert recall("layers", "key") is None
    monkeypatch.setitem(remembered.MOST, "layers", 3)
    for number in range(6):
        remember("layers", str(number), {})
        # their order is that of their times, which may be the same
        for at, kept in enumerate(sorted((home / "cache" / "layers").iterdir())):
            os.utime(kept, (at, at))
    assert len(list((home / "cache" / "layers").iterdir())) == 3
    monkeypatch.setenv("TORCHX_HOME", "/proc/none")
    remember("layers", "key", {})
    assert recall("layers", "key") is None


def test_two_layers_of_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    for number in range(5):
        (tmp_path / "work" / f"f{number}").write_bytes(os.urandom(700_000))
    files = workspace_files(Workspace({str(tmp_path / "work"): ""}))
    made = [make_layer(files, "/", str(tmp_path / str(number))) for number in range(2)]
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    assert made[0].digest == made[1].digest


def test_archive_has_known_bytes(tmp_path: Path) -> None:
    """Layers are addressed by their bytes: other bytes make every workspace upload again."""
    (tmp_path / "work" / "d").mkdir(parents=True)
    (tmp_path / "work" / "d" / ("n" * 101)).write_text("long name")
    (tmp_path / "work" / "run").write_text("#!/bin/sh\n")
    (tmp_path / "work" / "run").chmod(0o755)
    (tmp_path / "work" / "link").symlink_to("run")
    (tmp_path / "work" / "ünïcode").write_text("not ASCII")
    for path in (tmp_path / "work" / "d" / ("n" * 101), tmp_path / "work" / "ünïcode"):
        path.chmod(0o644)
    files = workspace_files(Workspace({str(tmp_path / "work"): ""}))
    data = b"".join(tar_pieces(files, "/app"))
    assert (
        hashlib.sha256(data).hexdigest()
        == "72bc5d80df69470a81bea422a151c32a80ff3babe2d544336a37890d98f1550b"
    )
