"""Tests of workspaces that are made to read too much, or files outside of them."""

from __future__ import annotations

import os
import pwd
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchx_kit.workspace import workspace_files
from torchx_kit.workspace.tree import open_project
from torchx_specs import Workspace
from torchx_specs.errors import WorkspaceError

DEADLINE = 120.0


def paths(folder: Path) -> list[str]:
    return [entry.path for entry in workspace_files(Workspace({str(folder): ""}))]


def test_ignore_file_that_is_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".torchxignore")
    errors: list[str] = []

    def read() -> None:
        with pytest.raises(WorkspaceError) as raised:
            paths(tmp_path)
        errors.append(str(raised.value))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert errors
    assert "not a regular file" in errors[0]


def test_ignore_file_that_is_a_device_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".torchxignore").symlink_to("/dev/zero")
    with pytest.raises(WorkspaceError, match="not a regular file"):
        paths(tmp_path)


def test_large_ignore_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".torchxignore").write_bytes(b"#" * (2 << 20))
    with pytest.raises(WorkspaceError, match="larger than 1 MiB"):
        paths(tmp_path)


def test_home_directory_of_the_user_database_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "homes" / "me"
    own.mkdir(parents=True)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(own)))
    monkeypatch.setenv("HOME", str(tmp_path / "other"))
    with pytest.raises(WorkspaceError, match="is your home directory"):
        open_project(str(own))
    with pytest.raises(WorkspaceError, match="is a folder above your home directory"):
        open_project(str(own.parent))
    (own / "project").mkdir()
    assert open_project(str(own / "project"))[0] is None


def test_home_directory_by_a_cache_of_fsspec_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("fsspec")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(WorkspaceError, match="is your home directory"):
        open_project(f"simplecache::file://{tmp_path}")


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        (".aws", "credentials"),
        (".docker", "config.json"),
        (".ssh", "work"),
        (".config/gcloud", "access_tokens.db"),
    ],
)
def test_private_folder_as_the_workspace_is_uploaded_without_its_secrets(
    tmp_path: Path, folder: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    private = tmp_path / folder
    private.mkdir(parents=True)
    (private / name).write_text("secret")
    assert paths(private) == []
    assert f"'{name}'" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        *(".ENV", "ID_RSA", ".env~", "id_rsa.old", "id_ed25519.bak", ".npmrc.orig"),
        *("rclone.conf", ".config/containers/auth.json", ".aws/credentials.bak"),
    ],
)
def test_copy_of_a_secret_is_left_out(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("secret")
    assert paths(tmp_path) == []


@pytest.mark.parametrize("name", ["old", "train.bak", "a.py~", "notes.old"])
def test_copy_of_another_file_is_uploaded(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("")
    assert paths(tmp_path) == [name]


def test_file_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (tmp_path / "outside").write_text("private")
    (workspace / "data").write_text("private")
    (entry,) = workspace_files(Workspace({str(workspace): ""}))
    (workspace / "data").unlink()
    (workspace / "data").symlink_to(tmp_path / "outside")
    with pytest.raises(WorkspaceError, match="was replaced by a symbolic link"):
        list(entry.chunks())


def test_file_that_became_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    (entry,) = workspace_files(Workspace({str(tmp_path): ""}))
    (tmp_path / "data").unlink()
    os.mkfifo(tmp_path / "data")
    errors: list[WorkspaceError] = []

    def read() -> None:
        with pytest.raises(WorkspaceError) as raised:
            list(entry.chunks())
        errors.append(raised.value)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert errors


def test_file_that_has_grown_is_read_in_few_calls(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    (entry,) = workspace_files(Workspace({str(tmp_path): ""}))
    (tmp_path / "log").write_bytes(b"x" * (3 << 20))
    chunks = list(entry.chunks())
    assert b"".join(chunks) == b"x" * (3 << 20)
    assert len(chunks) < 10
