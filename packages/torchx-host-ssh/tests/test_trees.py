"""Tests of the copies of workspaces on a host, with a double of ssh."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.api import Host
from torchx_kit.workspace import workspace_files
from torchx_kit.workspace.host_dir import HostDirBuilder
from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace.spec import Workspace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    for k in range(20):
        (folder / "package" / f"{k}.py").write_text(f"print({k})\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "caf\xe9 \udcff").write_bytes(b"")
    (folder / "link").symlink_to("package/1.py")
    return folder


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the home directory of the host, and return its directory of trees."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / ".torchx" / "workspaces"


@pytest.fixture
def requests(host: SshHost, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the requests that the host gets."""
    found: list[Any] = []
    request = host._channel.request

    def record(*arguments: Any, **options: Any) -> Any:
        found.append(arguments)
        return request(*arguments, **options)

    monkeypatch.setattr(host._channel, "request", record)
    return found


def upload(host: SshHost, project: Path) -> str:
    builder = HostDirBuilder(host)
    plan = builder.plan("", Workspace({str(project): ""}), {})
    assert plan is not None
    builder.build(plan, {})
    return builder.path(plan.image)


def sent(requests: list[Any]) -> dict[str, int]:
    """Return the names of the requests, and how many files were sent."""
    names = [one[0] for one in requests]
    files = sum(len([x for x in one[1] if x[0] == "put_part"]) for one in requests if len(one) > 1)
    return {**{name: names.count(name) for name in names}, "files": files}


def content(folder: Path) -> dict[str, object]:
    return {
        os.fsdecode(path.relative_to(folder)): (
            os.readlink(path)
            if path.is_symlink()
            else (path.read_bytes(), bool(path.stat().st_mode & 0o100))
        )
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def test_a_tree_has_the_files_of_the_workspace(host: SshHost, project: Path, trees: Path) -> None:
    path = Path(upload(host, project))
    assert path.parent.parent == trees
    assert content(path) == content(project)


def test_an_unchanged_workspace_needs_one_request(
    host: SshHost, requests: list[Any], project: Path, trees: Path
) -> None:
    first = upload(host, project)
    requests.clear()
    assert upload(host, project) == first
    assert sent(requests) == {"find_tree": 1, "files": 0}


def test_only_a_changed_file_is_sent(
    host: SshHost, requests: list[Any], project: Path, trees: Path
) -> None:
    first = upload(host, project)
    (project / "package" / "3.py").write_text("print('changed')\n")
    (project / "package" / "copy.py").write_text("print('changed')\n")
    requests.clear()
    second = upload(host, project)
    assert second != first
    assert sent(requests) == {"find_tree": 1, "make_tree": 1, "batch": 1, "files": 1}
    assert content(Path(second)) == content(project)


def test_a_tree_that_a_job_changed_is_not_used_again(
    host: SshHost, requests: list[Any], project: Path, trees: Path
) -> None:
    first = Path(upload(host, project))
    (first / "package" / "3.py").write_text("print(4)\n")
    (first / "result").touch()
    requests.clear()
    second = Path(upload(host, project))
    assert second.parent.name == f"{first.parent.name}-2"
    assert content(second) == content(project)
    assert sent(requests)["files"] == 1
    (first / "package" / "5.py").unlink()
    assert Path(upload(host, project)) == second


def test_new_files_of_jobs_do_not_matter(host: SshHost, project: Path, trees: Path) -> None:
    first = Path(upload(host, project))
    (first / "result").touch()
    assert Path(upload(host, project)) == first


def test_an_interrupted_upload_is_repeated(
    connect: Callable[[], SshHost], project: Path, trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = connect()
    send = Host._send

    def cut(self: SshHost, requests: Any) -> Any:
        monkeypatch.setattr(Host, "_send", send)
        self._channel.connection()._process.kill()
        return send(self, requests)

    monkeypatch.setattr(Host, "_send", cut)
    assert content(Path(upload(host, project))) == content(project)


def test_a_file_that_changes_during_the_upload_is_an_error(
    host: SshHost, project: Path, trees: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = workspace_files(Workspace({str(project): ""}))
    digests = [b"" if one.link else os.urandom(32) for one in files]
    with pytest.raises(WorkspaceError, match="changed while it was copied"):
        host.put_tree(str(trees), "name", files, digests)
    assert host.find_tree(str(trees), "name") == ""


def test_many_large_files_are_sent_in_several_requests(
    host: SshHost, requests: list[Any], project: Path, trees: Path
) -> None:
    shutil.rmtree(project / "package")
    for k in range(3):
        (project / f"large-{k}").write_bytes(os.urandom(3 << 20))
    path = Path(upload(host, project))
    assert content(path) == content(project)
    assert sent(requests)["batch"] > 1


def test_a_workspace_that_changed_after_the_dry_run_is_an_error(
    host: SshHost, project: Path, trees: Path
) -> None:
    builder = HostDirBuilder(host)
    plan = builder.plan("", Workspace({str(project): ""}), {})
    assert plan is not None
    (project / "run.sh").write_text("other")
    with pytest.raises(WorkspaceError, match="has changed since the dry run"):
        builder.build(plan, {})


@pytest.mark.parametrize(
    ("image", "cfg"), [("ubuntu:24.04", {}), ("", {"job_dir": "/scratch/project"})]
)
def test_a_job_that_cannot_use_a_tree_gets_none(
    host: SshHost,
    project: Path,
    caplog: pytest.LogCaptureFixture,
    image: str,
    cfg: dict[str, str],
) -> None:
    assert HostDirBuilder(host).plan(image, Workspace({str(project): ""}), cfg) is None
    assert "the workspace is not copied to login1" in caplog.text


def test_only_unused_and_unchanged_trees_can_be_removed(
    host: SshHost, project: Path, trees: Path
) -> None:
    first = Path(upload(host, project))
    (first / "package" / "__pycache__").mkdir()
    (first / "package" / "__pycache__" / "1.pyc").touch()
    [tree] = host.list_trees(str(trees))
    assert tree.is_unchanged
    assert tree.size >= sum(
        len(item[0]) for item in content(project).values() if type(item[0]) is bytes
    )
    upload(host, project)
    assert not host.remove_tree_if_unused(str(trees), tree.name, tree.used_ns)
    assert first.is_dir()
    (first / "result").touch()
    [tree] = host.list_trees(str(trees))
    assert not tree.is_unchanged
    assert host.remove_tree_if_unused(str(trees), tree.name, tree.used_ns)
    assert host.list_trees(str(trees)) == []
    assert host.remove_tree_if_unused(str(trees), tree.name, tree.used_ns)
