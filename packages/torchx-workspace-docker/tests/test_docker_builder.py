"""Tests of plans, layers, names and credentials, without an engine and without a registry."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchx_kit.workspace import workspace_files
from torchx_specs.errors import RequestError, WorkspaceError
from torchx_specs.workspace import Workspace
from torchx_workspace_docker.builder import DockerBuilder
from torchx_workspace_docker.docker_workspace import print_push_events
from torchx_workspace_docker.engine import build
from torchx_workspace_docker.engine.load import _read_ahead
from torchx_workspace_docker.image_config import LABEL_BASE, patched_config, working_folder
from torchx_workspace_docker.layer import make_layer
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.credentials import credentials_for

REPO = {"image_repo": "example.com/jobs"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "tmp").mkdir(parents=True)
    (root / "a").write_text("a")
    (root / "tmp" / "run").write_text("#!/bin/sh\n")
    (root / "tmp" / "run").chmod(0o755)
    (root / "link").symlink_to("a")
    return root


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))


def image(root: Path, base: str = "base:1", remote: bool = True, **cfg: Any) -> str:
    builder = DockerBuilder()
    builder.remote = remote
    return builder.plan(base, Workspace({str(root): ""}), cfg).image


def test_name_depends_on_everything_in_the_image_and_on_nothing_else(root: Path) -> None:
    first = image(root, **REPO)
    assert first.startswith("example.com/jobs:")
    os.utime(root / "a", (1, 1))
    (root / "tmp" / "run").touch()
    assert image(root, **REPO, quiet=True) == first
    names = {first, image(root, "base:2", **REPO)}
    (root / "a").chmod(0o600)
    names.add(image(root, **REPO))
    (root / "a").write_text("b")
    names.add(image(root, **REPO))
    (root / "Dockerfile.torchx").write_text("FROM x\n")
    names.add(image(root, **REPO))
    assert len(names) == 5
    assert image(root, remote=False).startswith("torchx-workspace:")


def test_rules_of_torchxignore_follow_those_of_dockerignore(root: Path) -> None:
    (root / ".dockerignore").write_text("a\ntmp\n")
    (root / ".torchxignore").write_text("!a\n")
    plan = DockerBuilder().plan("base", Workspace({str(root): ""}), REPO)
    assert [f.path for f in plan.details.files] == [".dockerignore", ".torchxignore", "a", "link"]


def test_plan_refuses_wrong_options_and_large_workspaces(root: Path) -> None:
    with pytest.raises(RequestError, match="option image_repo"):
        image(root)
    for wrong in ("example.com/x:1", "Example.com/X", "example.com/x@sha256:0"):
        with pytest.raises(RequestError, match="without a tag"):
            image(root, image_repo=wrong)
    with pytest.raises(RequestError, match="the role has no image"):
        image(root, "", **REPO)
    (root / "tmp" / "large").write_bytes(b"\0" * (2 << 20))
    with pytest.raises(WorkspaceError, match=r"largest: tmp/ 2 MB"):
        image(root, **REPO, image_max_mb=1)
    assert image(root, **REPO, image_max_mb=0)


def test_layer_does_not_depend_on_times(root: Path, tmp_path: Path) -> None:
    files = workspace_files(Workspace({str(root): ""}))
    one = make_layer(files, "/app", str(tmp_path / "one"))
    for path in (root / "a", root / "tmp" / "run"):
        os.utime(path, (1, 1))
    two = make_layer(files, "/app", str(tmp_path / "two"))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (one.digest, one.diff_id) == (two.digest, two.diff_id)
    assert one.size == (tmp_path / "one").stat().st_size
    with tarfile.open(tmp_path / "one") as archive:
        members = {m.name: m for m in archive}
    assert list(members) == ["app", "app/a", "app/link", "app/tmp", "app/tmp/run"]
    assert members["app/tmp/run"].mode == 0o755
    assert members["app/link"].linkname == "a"
    assert {(m.uid, m.gid, m.mtime, m.uname) for m in members.values()} == {(0, 0, 0, "")}


def test_temporary_folders_of_the_image_stay_writable(root: Path, tmp_path: Path) -> None:
    files = workspace_files(Workspace({str(root): ""}))
    make_layer(files, "/", str(tmp_path / "layer"))
    with tarfile.open(tmp_path / "layer") as archive:
        assert archive.getmember("tmp").mode == 0o1777


@pytest.mark.parametrize("content", ["", "shorter", "much longer than it was"])
def test_file_that_changes_while_it_is_read_is_an_error(
    root: Path, tmp_path: Path, content: str
) -> None:
    (root / "a").write_text("ten bytes!")
    files = workspace_files(Workspace({str(root): ""}))
    (root / "a").write_text(content)
    with pytest.raises(WorkspaceError, match="has changed while it was read"):
        make_layer(files, "/", str(tmp_path / "layer"))


def test_full_disk_is_an_error_that_names_tmpdir(root: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    (root / "a").write_bytes(os.urandom(1 << 20))
    files = workspace_files(Workspace({str(root): ""}))
    with pytest.raises(WorkspaceError, match="No space left on device; set TMPDIR"):
        make_layer(files, "/", "/dev/full")


def test_patched_config_adds_layers_and_labels() -> None:
    base = {
        "architecture": "arm64",
        "config": {"WorkingDir": "/app", "Labels": {"a": "b"}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:1"]},
        "history": [{"created_by": "x"}],
    }
    new = patched_config(base, ["sha256:2", "sha256:3"], "sha256:base")
    assert new["rootfs"]["diff_ids"] == ["sha256:1", "sha256:2", "sha256:3"]
    assert new["architecture"] == "arm64"
    assert new["config"]["Labels"][LABEL_BASE] == "sha256:base"
    assert new["config"]["Labels"]["a"] == "b"
    assert len(new["history"]) == 3
    assert base["rootfs"] == {"type": "layers", "diff_ids": ["sha256:1"]}
    assert working_folder(base["config"]) == "/app"  # type: ignore[arg-type]
    assert working_folder({}) == "/"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ubuntu", ("docker.io", "library/ubuntu", "latest")),
        ("me/x:1", ("docker.io", "me/x", "1")),
        ("localhost/x", ("localhost", "x", "latest")),
        ("host:5000/a/b", ("host:5000", "a/b", "latest")),
        ("ghcr.io/a/b:2@sha256:ab", ("ghcr.io", "a/b", "sha256:ab")),
    ],
)
def test_reference_is_parsed_as_docker_does(name: str, parts: tuple[str, str, str]) -> None:
    reference = Reference.parse(name)
    assert (reference.registry, reference.repository, reference.version) == parts


def test_credentials_come_from_the_docker_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert credentials_for("example.com") is None
    auth = base64.b64encode(b"me:s:3").decode()
    auths = {"example.com": {"auth": auth}, "https://index.docker.io/v1/": {"auth": auth}}
    auths["token.example.com"] = {"identitytoken": "t"}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"auths": auths}))
    for registry in ("example.com", "docker.io"):
        found = credentials_for(registry)
        assert found is not None
        assert (found.user, found.secret) == ("me", "s:3")
        assert "s:3" not in repr(found)
    found = credentials_for("token.example.com")
    assert found is not None
    assert (found.user, found.secret) == ("", "t")
    config.write_text(json.dumps({"credsStore": "../evil"}))
    with pytest.raises(WorkspaceError, match="is not a valid name"):
        credentials_for("example.com")
    config.write_text(json.dumps({"credsStore": "torchx-none"}))
    with pytest.raises(WorkspaceError, match="docker-credential-torchx-none"):
        credentials_for("example.com")
    config.write_text("{")
    with pytest.raises(WorkspaceError, match=r"config\.json"):
        credentials_for("example.com")


@pytest.mark.parametrize(
    ("description", "status", "way"),
    [
        ({"GraphDriver": {"Name": "overlay2"}}, None, "load"),
        ({}, [["driver-type", "io.containerd.snapshotter.v1"]], "build"),
        ({"GraphDriver": {"Name": "overlayfs"}}, [["Backing Filesystem", "extfs"]], "load"),
    ],
    ids=["engine's store", "containerd's store", "another store"],
)
def test_image_in_the_store_of_containerd_is_built_by_the_engine(
    description: dict[str, Any], status: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store of containerd loads only archives that have all layers of an image."""
    client: Any = SimpleNamespace(api=SimpleNamespace(info=lambda: {"DriverStatus": status}))
    base = {**description, "Id": "sha256:0", "Config": {}}
    increment = SimpleNamespace(parent=base, files=[], remember=lambda image: None)
    monkeypatch.setattr(build, "plan_increment", lambda *_: increment)
    monkeypatch.setattr(build, "_docker_build", lambda *_: "build")
    monkeypatch.setattr(build, "load_image", lambda *_: "load")
    plan: Any = SimpleNamespace(base="base:1", has_dockerfile=False, files=[])
    reference: Any = SimpleNamespace(image="made:1", workspace="/project")
    assert build._build(client, reference, plan, base, {}) == way


def test_push_events_are_printed_once_for_each_change() -> None:
    stream = io.StringIO()
    events = [{"status": "Pushing", "id": "a"}, {"status": "Pushing", "id": "a"}, {"status": "ok"}]
    print_push_events(events, stream)
    assert stream.getvalue() == "a: Pushing\nok\n"
    with pytest.raises(RuntimeError, match="denied"):
        print_push_events([{"error": "denied"}], stream)


def test_blocks_are_read_ahead_in_order_and_keep_their_error() -> None:
    def blocks(most: int, made: list[int]) -> Iterator[bytes]:
        for i in range(most):
            made.append(i)
            yield str(i).encode()
        raise WorkspaceError("it changes")

    pending = _read_ahead(blocks(20, []))
    assert [next(pending) for _ in range(20)] == [str(i).encode() for i in range(20)]
    with pytest.raises(WorkspaceError, match="it changes"):
        next(pending)
    made: list[int] = []
    abandoned = _read_ahead(blocks(1000, made))
    assert next(abandoned) == b"0"
    abandoned.close()
    assert len(made) < 10
