"""Tests of the workspace type ``dir`` and of the older mixins."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.workspace import WorkspaceFile
from torchx_kit.workspace import dir_builder as dir_module
from torchx_kit.workspace.dir_builder import (
    DirBuilder,
    DirWorkspaceMixin,
    TmpDirWorkspaceMixin,
    copy_workspace,
)
from torchx_specs import Role, Workspace
from torchx_specs.errors import WorkspaceError
from torchx_specs.options.run_options import CfgVal


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "sub").mkdir(parents=True)
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "sub/data").write_bytes(bytes(range(256)) * 8192)
    (root / "sub/private").write_text("p")
    (root / "sub/private").chmod(0o400)
    (root / "link").symlink_to("sub/data")
    (root / "x.log").write_text("excluded")
    (root / ".torchxignore").write_text("*.log")
    return root


@pytest.fixture
def job_dir(tmp_path: Path) -> Path:
    return tmp_path / "job"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def tree(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def role(project: Path, name: str = "r") -> Role:
    return Role(name=name, image="base", workspace=Workspace({str(project): ""}))


class TestManyFiles:
    """Tests with so many files that several threads copy them."""

    @pytest.fixture
    def many(self, tmp_path: Path) -> Path:
        root = tmp_path / "many"
        for number in range(1200):
            path = root / f"d{number % 7}" / f"f{number}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(number))
            path.chmod(0o600 + number % 8)
        return root

    def test_all_files_are_copied_and_progress_is_logged(
        self,
        many: Path,
        job_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr("torchx_kit.progress.LOG_INTERVAL", 0.0)
        caplog.set_level("INFO")
        copy_workspace(Workspace({str(many): ""}), str(job_dir))
        assert tree(job_dir) == tree(many)
        for path in many.rglob("f*"):
            copy = job_dir / path.relative_to(many)
            assert copy.read_text() == path.read_text()
            assert mode(copy) == mode(path)
        assert "of 1,200 files" in caplog.text

    def test_failure_in_one_thread_is_raised_and_leaves_nothing(
        self, many: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = dir_module._write

        def fails(entry: WorkspaceFile, target: str) -> None:
            if entry.path == "d3/f500":
                raise OSError(28, "No space left on device")
            write(entry, target)

        monkeypatch.setattr(dir_module, "_write", fails)
        with pytest.raises(WorkspaceError, match=r"d3/f500: No space left on device"):
            copy_workspace(Workspace({str(many): ""}), str(job_dir))
        assert list(job_dir.parent.glob("*job*")) == []


class TestHardLinks:
    def test_hard_links_share_files_and_obey_ignore_rules(
        self, project: Path, job_dir: Path
    ) -> None:
        plan = DirBuilder().plan("", Workspace({str(project): ""}), {"job_dir": str(job_dir)})
        assert plan is not None
        DirBuilder().build(plan, {"job_dir": str(job_dir), "job_dir_links": True})
        assert (job_dir / "sub/data").samefile(project / "sub/data")
        assert os.readlink(job_dir / "link") == "sub/data"
        assert "x.log" not in tree(job_dir)

    def test_files_are_copied_if_links_are_not_possible(
        self, project: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(*paths: str) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refused)
        copy_workspace(Workspace({str(project): ""}), str(job_dir), hard_links=True)
        assert not (job_dir / "sub/data").samefile(project / "sub/data")
        assert (job_dir / "sub/data").read_bytes() == (project / "sub/data").read_bytes()


class TestCopy:
    def test_contents_modes_and_links_are_kept(self, project: Path, job_dir: Path) -> None:
        copy_workspace(Workspace({str(project): ""}), str(job_dir))
        assert tree(job_dir) == [
            ".torchxignore",
            "link",
            "run.sh",
            "sub",
            "sub/data",
            "sub/private",
        ]
        assert (job_dir / "sub/data").read_bytes() == (project / "sub/data").read_bytes()
        assert mode(job_dir / "run.sh") == 0o755
        assert mode(job_dir / "sub/private") == 0o400
        assert os.readlink(job_dir / "link") == "sub/data"

    def test_file_modes_do_not_depend_on_the_umask(self, project: Path, job_dir: Path) -> None:
        (project / "run.sh").chmod(0o777)
        before = os.umask(0o077)
        try:
            copy_workspace(Workspace({str(project): ""}), str(job_dir))
        finally:
            os.umask(before)
        assert mode(job_dir / "run.sh") == 0o777
        assert mode(job_dir) == 0o700

    def test_only_modes_that_differ_are_set(
        self, project: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real, changed = os.fchmod, []

        def recorded(fd: int, mode: int) -> None:
            changed.append(mode)
            real(fd, mode)

        monkeypatch.setattr(os, "fchmod", recorded)
        before = os.umask(0o022)
        try:
            copy_workspace(Workspace({str(project): ""}), str(job_dir))
        finally:
            os.umask(before)
        assert changed == [0o400]  # A new file has to be writable, so this mode comes last.

    def test_folder_has_the_mode_of_a_new_folder(self, project: Path, job_dir: Path) -> None:
        copy_workspace(Workspace({str(project): ""}), str(job_dir))
        (job_dir.parent / "other").mkdir()
        assert mode(job_dir) == mode(job_dir.parent / "other")

    def test_projects_are_copied_to_their_targets(self, project: Path, job_dir: Path) -> None:
        copy_workspace(Workspace({str(project): "", f"{project}/sub": "lib/sub"}), str(job_dir))
        assert (job_dir / "lib/sub/private").read_text() == "p"

    def test_copy_from_an_fsspec_file_system(self, job_dir: Path) -> None:
        fs = pytest.importorskip("fsspec").filesystem("memory")
        fs.pipe("/dir-copy/a/b.txt", b"from memory")
        copy_workspace(Workspace({"memory://dir-copy": ""}), str(job_dir))
        assert (job_dir / "a/b.txt").read_bytes() == b"from memory"
        assert mode(job_dir / "a/b.txt") == 0o644

    def test_existing_folder_is_an_error_and_not_changed(
        self, project: Path, job_dir: Path
    ) -> None:
        job_dir.mkdir()
        (job_dir / "mine").touch()
        with pytest.raises(FileExistsError, match=f"{job_dir} exists") as raised:
            copy_workspace(Workspace({str(project): ""}), str(job_dir))
        assert isinstance(raised.value, WorkspaceError)
        assert tree(job_dir) == ["mine"]

    def test_existing_dangling_link_is_an_error(self, project: Path, job_dir: Path) -> None:
        job_dir.symlink_to("nowhere")
        with pytest.raises(FileExistsError):
            copy_workspace(Workspace({str(project): ""}), str(job_dir))

    def test_missing_parent_folders_are_created(self, project: Path, tmp_path: Path) -> None:
        copy_workspace(Workspace({str(project): ""}), str(tmp_path / "no/parent/job"))
        assert (tmp_path / "no/parent/job/run.sh").exists()

    def test_parent_that_is_a_file_is_an_error(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(WorkspaceError, match=r"file is not a folder"):
            copy_workspace(Workspace({str(project): ""}), str(tmp_path / "file/job"))

    def test_missing_workspace_leaves_nothing(self, project: Path, job_dir: Path) -> None:
        with pytest.raises(WorkspaceError, match="does not exist: /no/such"):
            copy_workspace(Workspace({str(project): "", "/no/such": "x"}), str(job_dir))
        assert tree(job_dir.parent) == tree(project.parent)
        assert not job_dir.exists()

    @pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_failure_in_the_middle_leaves_nothing(
        self, project: Path, job_dir: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = tree(job_dir.parent)
        real, calls = os.write, []

        def failing_write(fd: int, data: bytes) -> int:
            calls.append(fd)
            if len(calls) == 3:
                raise error
            return real(fd, data)

        monkeypatch.setattr(os, "write", failing_write)
        expected = WorkspaceError if isinstance(error, OSError) else type(error)
        with pytest.raises(expected) as raised:
            copy_workspace(Workspace({str(project): ""}), str(job_dir))
        if isinstance(error, OSError):
            assert "cannot write" in str(raised.value)
            assert "No space left" in str(raised.value)
        assert tree(job_dir.parent) == before

    def test_file_deleted_during_the_copy_leaves_nothing(
        self, project: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def then_remove(*args: Any, **options: Any) -> Any:
            files = listing(*args, **options)
            (project / "sub/data").unlink()
            return files

        listing = dir_module.workspace_files
        monkeypatch.setattr(dir_module, "workspace_files", then_remove)
        with pytest.raises(WorkspaceError, match=r"cannot read .*/sub/data"):
            copy_workspace(Workspace({str(project): ""}), str(job_dir))
        assert not job_dir.exists()
        assert tree(job_dir.parent) == ["project", *(f"project/{p}" for p in tree(project))]

    def test_folder_created_by_another_process_is_an_error(
        self, project: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def make_it_first(*args: Any, **options: Any) -> Any:
            job_dir.mkdir()
            (job_dir / "theirs").touch()
            return listing(*args, **options)

        listing = dir_module.workspace_files
        monkeypatch.setattr(dir_module, "workspace_files", make_it_first)
        with pytest.raises(FileExistsError, match="another process has created"):
            copy_workspace(Workspace({str(project): ""}), str(job_dir))
        assert tree(job_dir) == ["theirs"]

    def test_partial_writes_are_continued(
        self, project: Path, job_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:1000]))
        copy_workspace(Workspace({f"{project}/sub/data": ""}), str(job_dir))
        assert (job_dir / "data").read_bytes() == (project / "sub/data").read_bytes()


class TestBuilder:
    def test_builder_has_options_for_the_folder_and_for_links(self) -> None:
        names = [name for name, _ in DirBuilder().opts()]
        assert names == ["job_dir", "job_dir_links", "follow_links", "gitignore"]

    def test_link_to_the_outside_is_copied_only_with_follow_links(
        self, project: Path, job_dir: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "outside").write_text("shared")
        (project / "data").symlink_to(tmp_path / "outside")
        builder, workspace = DirBuilder(), Workspace({str(project): ""})
        cfg: dict[str, CfgVal] = {"job_dir": str(job_dir)}
        plan = builder.plan("base", workspace, cfg)
        assert plan is not None
        with pytest.raises(WorkspaceError, match="follow_links"):
            builder.build(plan, cfg)
        assert not job_dir.exists()
        builder.build(plan, {**cfg, "follow_links": True})
        assert (job_dir / "data").read_text() == "shared"

    def test_plan_without_job_dir_is_none(self, project: Path) -> None:
        assert DirBuilder().plan("base", Workspace({str(project): ""}), {"job_dir": None}) is None

    def test_plan_creates_nothing(self, project: Path, job_dir: Path) -> None:
        workspace = Workspace({str(project): ""})
        plan = DirBuilder().plan("base", workspace, {"job_dir": str(job_dir)})
        assert plan is not None
        assert plan.image == str(job_dir)
        assert not job_dir.exists()
        assert DirBuilder().build(plan, {}).ready
        assert (job_dir / "run.sh").exists()

    def test_plan_refuses_missing_projects_and_existing_folders(
        self, project: Path, job_dir: Path
    ) -> None:
        cfg = {"job_dir": str(job_dir)}
        with pytest.raises(WorkspaceError, match="does not exist: /no/such"):
            DirBuilder().plan("base", Workspace({"/no/such": ""}), cfg)
        job_dir.mkdir()
        with pytest.raises(FileExistsError):
            DirBuilder().plan("base", Workspace({str(project): ""}), cfg)


class TestOlderMixins:
    def test_dir_mixin_copies_to_job_dir(self, project: Path, job_dir: Path) -> None:
        r = role(project)
        DirWorkspaceMixin().build_workspace_and_update_role(
            r, str(project), {"job_dir": str(job_dir)}
        )
        assert r.image == str(job_dir)
        assert (job_dir / "run.sh").exists()

    def test_dir_mixin_refuses_an_existing_job_dir(self, project: Path, job_dir: Path) -> None:
        job_dir.mkdir()
        with pytest.raises(FileExistsError):
            DirWorkspaceMixin().build_workspaces([role(project)], {"job_dir": str(job_dir)})

    def test_dir_mixin_without_job_dir_changes_nothing(self, project: Path) -> None:
        roles = [role(project)]
        DirWorkspaceMixin().build_workspaces(roles, {"job_dir": None})
        DirWorkspaceMixin().build_workspace_and_update_role(roles[0], str(project), {})
        assert roles[0].image == "base"

    def test_dir_mixin_roles_share_a_copy(self, project: Path, job_dir: Path) -> None:
        roles = [role(project, "a"), role(project, "b"), Role(name="c", image="base")]
        DirWorkspaceMixin().build_workspaces(roles, {"job_dir": str(job_dir)})
        assert [r.image for r in roles] == [str(job_dir), str(job_dir), "base"]

    def test_temporary_mixin_copies_once_for_all_roles(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        roles = [role(project, "a"), role(project, "b")]
        TmpDirWorkspaceMixin().build_workspaces(roles, {})
        copy = Path(roles[0].image)
        assert copy.name.startswith("torchx_workspace")
        assert roles[1].image == str(copy)
        assert mode(copy / "run.sh") == 0o755

        TmpDirWorkspaceMixin().build_workspace_and_update_role(roles[0], str(project), {})
        assert roles[0].image != str(copy)

    def test_failed_copy_leaves_no_temporary_folder(
        self, project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "t").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "t"))
        monkeypatch.setattr(os, "fchmod", lambda *_: (_ for _ in ()).throw(OSError(5, "I/O error")))
        with pytest.raises(WorkspaceError, match="I/O error"):
            TmpDirWorkspaceMixin().build_workspaces([role(project)], {})
        assert tree(tmp_path / "t") == []

    def test_older_mixins_have_no_options(self) -> None:
        assert len(DirWorkspaceMixin().workspace_opts()) == 0
        assert len(TmpDirWorkspaceMixin().workspace_opts()) == 0


@pytest.mark.parametrize("form", ["{}", "file://{}"])
@pytest.mark.parametrize("is_current", [True, False])
def test_a_workspace_elsewhere_that_is_not_copied_is_a_warning(
    is_current: bool,
    form: str,
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(project if is_current else tmp_path)
    source = form.format(project)
    assert DirBuilder().plan("", Workspace({source: ""}), {}) is None
    assert (f"the workspace {source} is not copied" in caplog.text) is not is_current
