"""Workspaces copied to a folder: for schedulers whose jobs see this machine's file system."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from torchx_specs.errors import WorkspaceError
from torchx_specs.run_options import CfgVal, runopts
from torchx_specs.workspace.api import WorkspaceMixin
from torchx_specs.workspace.builder import Built, BuiltReference, Product, WorkspaceBuilder
from torchx_specs.workspace.spec import Workspace
from torchx_specs.workspace.tree import WorkspaceFile, open_project, workspace_files

if TYPE_CHECKING:
    from torchx_specs.app import Role


class FolderExistsError(WorkspaceError, FileExistsError):
    """The folder that a workspace should be copied to is there already."""


class DirBuilder(WorkspaceBuilder):
    """Copies the workspace to the folder named by ``job_dir``, which becomes the role's image.

    Without ``job_dir`` the workspace stays behind, and the role as it is.
    """

    product: ClassVar[Product] = "folder"

    def opts(self) -> runopts:
        """Returns ``job_dir``."""
        opts = runopts()
        opts.add(
            "job_dir",
            type_=str,
            help="copy the workspace to this folder: a new one, on a file system the job sees",
        )
        return opts

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Returns ``job_dir``, or None if that is not given.

        Raises:
            WorkspaceError: a project of the workspace does not exist, or ``job_dir`` does (that is
                a FileExistsError, too)
        """
        job_dir = cfg.get("job_dir")
        if not job_dir:
            return None
        folder = os.path.abspath(os.path.expanduser(str(job_dir)))
        _check_new(folder)
        for source in workspace.projects:
            open_project(source)
        return BuiltReference(folder, workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Copies; a failure leaves nothing behind."""
        copy_workspace(plan.workspace, plan.image)
        return Built(ready=True)


class DirWorkspaceMixin(WorkspaceMixin[None]):
    """Copies the workspace to ``cfg["job_dir"]``, if given, as soon as asked to (older plugins)."""

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copies the workspace and makes the copy the role's image; roles may share a copy."""
        job_dir = cfg.get("job_dir")
        if not job_dir or not role.workspace:
            return
        key = (__name__, job_dir, role.workspace)
        if key not in build_cache:
            copy_workspace(role.workspace, str(job_dir))
            build_cache[key] = True
        role.image = str(job_dir)

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copies one folder, and makes the copy the role's image."""
        job_dir = cfg.get("job_dir")
        if job_dir:
            copy_workspace(Workspace({workspace: ""}), str(job_dir))
            role.image = str(job_dir)


class TmpDirWorkspaceMixin(WorkspaceMixin[None]):
    """Copies the workspace to a new temporary folder, as soon as asked to (older plugins)."""

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copies the workspace and makes the copy the role's image; roles may share a copy."""
        if not role.workspace:
            return
        key = (__name__, role.workspace)
        if key not in build_cache:
            build_cache[key] = _copy_to_temporary(role.workspace)
        role.image = str(build_cache[key])

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copies one folder, and makes the copy the role's image."""
        role.image = _copy_to_temporary(Workspace({workspace: ""}))


def copy_workspace(workspace: Workspace, folder: str) -> None:
    """Copies a workspace to a new folder, wholly or not at all, with file modes and links.

    Args:
        workspace: what to copy
        folder: must not exist; the folder it is in must

    Raises:
        WorkspaceError: the workspace cannot be read, or ``folder`` not be made (a FileExistsError,
            too, if it is there)
    """
    import shutil
    import tempfile

    folder = os.path.abspath(folder)
    _check_new(folder)
    files = workspace_files(workspace)
    parent, name = os.path.split(folder)
    try:
        partial = tempfile.mkdtemp(prefix=f".{name}.", dir=parent)
    except OSError as e:
        raise WorkspaceError(f"cannot make {folder}: {e.strerror or e}") from None
    try:
        copy_files(files, partial)
        os.chmod(partial, 0o777 & ~_umask(partial))
        _move(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def copy_files(files: Iterable[WorkspaceFile], folder: str) -> None:
    """Writes the files of a workspace into an existing folder.

    Raises:
        WorkspaceError: something cannot be read or written
    """
    made = {""}
    for entry in files:
        target = f"{folder}/{entry.path}"
        parent = entry.path.rpartition("/")[0]
        try:
            if parent not in made:
                os.makedirs(f"{folder}/{parent}", exist_ok=True)
                made.add(parent)
            if entry.link is not None:
                os.symlink(entry.link, target)
            else:
                _write(entry, target)
        except OSError as e:
            raise WorkspaceError(f"cannot write {target}: {e.strerror or e}") from None


def _write(entry: WorkspaceFile, target: str) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 | entry.mode)
    try:
        for chunk in entry.chunks():
            written = os.write(fd, chunk)
            while written < len(chunk):
                written += os.write(fd, chunk[written:])
        os.fchmod(fd, entry.mode)
    finally:
        os.close(fd)


def _check_new(folder: str) -> None:
    if os.path.lexists(folder):
        raise FolderExistsError(
            f"{folder} exists: name a folder that does not, for the workspace to be copied to"
        )
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        raise WorkspaceError(f"cannot make {folder}: there is no folder {parent}")


def _move(partial: str, folder: str) -> None:
    try:
        os.rename(partial, folder)
    except OSError as e:
        if os.path.lexists(folder):
            raise FolderExistsError(f"{folder} was made by somebody else in the meantime") from None
        raise WorkspaceError(f"cannot make {folder}: {e.strerror or e}") from None


def _umask(folder: str) -> int:
    """Returns the umask, by its effect: to ask the system is to set it, for all threads."""
    probe = os.path.join(folder, ".umask")
    os.mkdir(probe)
    try:
        return 0o777 & ~os.stat(probe).st_mode
    finally:
        os.rmdir(probe)


def _copy_to_temporary(workspace: Workspace) -> str:
    import shutil
    import tempfile

    files = workspace_files(workspace)
    folder = tempfile.mkdtemp(prefix="torchx_workspace")
    try:
        copy_files(files, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
