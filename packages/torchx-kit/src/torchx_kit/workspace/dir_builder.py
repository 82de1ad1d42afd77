"""The workspace type ``dir``: copies a workspace to a folder that jobs can read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from torchx_kit.logs.streams import write_all
from torchx_kit.progress import Step
from torchx_kit.workspace.builder import (
    BuilderOutput,
    Built,
    BuiltReference,
    WorkspaceBuilder,
    add_file_options,
    file_options,
)
from torchx_kit.workspace.ignore import IgnoreRules
from torchx_kit.workspace.tree import WorkspaceFile, open_project, workspace_files
from torchx_kit.workspace.working_directory import is_working_directory
from torchx_specs.errors import WorkspaceError
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.api import WorkspaceMixin
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.model.app import Role


_THREADS = 4
#: The number of files that a thread copies at a time.
_BATCH = 250


class FolderExistsError(WorkspaceError, FileExistsError):
    """The folder to which a workspace would be copied exists already."""


class DirBuilder(WorkspaceBuilder):
    """Copies the workspace to the folder ``job_dir``, which becomes the role's image.

    Without ``job_dir``, nothing is copied and the role does not change.
    """

    output: ClassVar[BuilderOutput] = "folder"
    #: Rules that apply to every project, after the rules of its ignore file.
    _left_out: IgnoreRules | None = None

    def opts(self) -> runopts:
        """Return the options ``job_dir`` and ``job_dir_links``, and those that select files."""
        opts = runopts()
        opts.add(
            "job_dir",
            type_=str,
            help="copy the workspace to this new folder, on a file system that the job can read",
        )
        opts.add(
            "job_dir_links",
            type_=bool,
            default=False,
            help="create hard links instead of copies of files on the same file system: fast, but a"
            " file that is changed in place changes on both sides",
        )
        add_file_options(opts)
        return opts

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Plan the copy to ``job_dir``; return None if that option is not set.

        The job then runs in the current directory. If this is not the workspace, log a warning.

        Raises:
            WorkspaceError: A project of the workspace does not exist, or a file is in the place of
                a folder above ``job_dir``.
            FolderExistsError: ``job_dir`` exists.
        """
        job_dir = cfg.get("job_dir")
        if not job_dir:
            if not is_working_directory(workspace):
                import logging  # imported here, so that start-up does not load it

                logging.getLogger(__name__).warning(
                    "the workspace %s is not copied: the job runs in the current directory; to copy"
                    " it, set the option for the job's directory (job_dir, or jobdir of lsf)",
                    workspace,
                )
            return None
        folder = os.path.abspath(os.path.expanduser(str(job_dir)))
        _check_absent(folder)
        for source in workspace.projects:
            open_project(source)
        return BuiltReference(folder, workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Copy the workspace; if that fails, remove the partial copy.

        Raises:
            WorkspaceError: The workspace cannot be read, or the copy cannot be written.
        """
        files = self._files(plan.workspace, cfg)
        copy_workspace(plan.workspace, plan.image, bool(cfg.get("job_dir_links")), files)
        return Built(ready=True)

    def _files(self, workspace: Workspace, cfg: Mapping[str, CfgVal]) -> list[WorkspaceFile]:
        return workspace_files(workspace, last_rules=self._left_out, **file_options(cfg))


class _CopyMixin(WorkspaceMixin[None]):
    """Copies the workspace during the dry run, without a separate plan.

    Plugins that were written for upstream's TorchX use the subclasses.
    """

    def _copy(self, workspace: Workspace, cfg: Mapping[str, CfgVal]) -> str:
        """Copy a workspace, and return the folder of the copy; an empty string for no copy."""
        raise NotImplementedError

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Copy the workspace, once for all roles that have it, and set the image to the copy."""
        if not role.workspace:
            return
        key = (__name__, cfg.get("job_dir"), role.workspace)
        if key not in build_cache:
            build_cache[key] = self._copy(role.workspace, cfg)
        role.image = str(build_cache[key]) or role.image

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Copy one folder, and set the role's image to the copy."""
        role.image = self._copy(Workspace({workspace: ""}), cfg) or role.image


class DirWorkspaceMixin(_CopyMixin):
    """Copies the workspace to ``cfg["job_dir"]``; without this option, nothing is copied."""

    def _copy(self, workspace: Workspace, cfg: Mapping[str, CfgVal]) -> str:
        job_dir = str(cfg.get("job_dir") or "")
        if job_dir:
            copy_workspace(workspace, job_dir)
        return job_dir


class TmpDirWorkspaceMixin(_CopyMixin):
    """Copies the workspace to a new temporary folder."""

    def _copy(self, workspace: Workspace, cfg: Mapping[str, CfgVal]) -> str:
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


def copy_workspace(
    workspace: Workspace,
    folder: str,
    hard_links: bool = False,
    files: Iterable[WorkspaceFile] | None = None,
) -> None:
    """Copy a workspace to a new folder, completely or not at all, with file modes and links.

    Args:
        workspace: The workspace.
        folder: The new folder; missing parents are created.
        hard_links: Whether to create hard links to files of the same file system instead of copies.
            A file that is changed in place then changes on both sides.
        files: The files to copy (default: all files of the workspace that no rule excludes).

    Raises:
        WorkspaceError: The workspace cannot be read, or ``folder`` cannot be created.
        FolderExistsError: ``folder`` exists.
    """
    import shutil

    folder = os.path.abspath(folder)
    _check_absent(folder)
    if files is None:
        files = workspace_files(workspace)
    parent, name = os.path.split(folder)
    partial = os.path.join(parent, f".{name}.{os.urandom(6).hex()}.partial")
    try:
        os.makedirs(partial)
    except OSError as e:
        raise WorkspaceError(f"cannot create {folder}: {e.strerror or e}") from None
    try:
        copy_files(files, partial, hard_links)
        _rename_into_place(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def copy_files(files: Iterable[WorkspaceFile], folder: str, hard_links: bool = False) -> None:
    """Copy the files of a workspace into an existing folder.

    Several threads copy many files. A copy that takes long reports its progress
    (:mod:`torchx_kit.progress`).

    Args:
        files: The files.
        folder: The folder.
        hard_links: As for :func:`copy_workspace`.

    Raises:
        WorkspaceError: A file cannot be read or written.
    """
    from concurrent.futures import ThreadPoolExecutor  # start-up does not load it

    files = list(files)
    parents = {entry.path.rpartition("/")[0] for entry in files}
    for parent in sorted(parents - {""}):
        try:
            os.makedirs(f"{folder}/{parent}", exist_ok=True)
        except OSError as e:
            raise WorkspaceError(f"cannot write {folder}/{parent}: {e.strerror or e}") from None
    batches = [files[at : at + _BATCH] for at in range(0, len(files), _BATCH)]
    with (
        Step(f"copying the workspace to {folder}", len(files), "files") as step,
        ThreadPoolExecutor(_THREADS) as pool,
    ):
        for copied in pool.map(partial(_copy_batch, folder, hard_links), batches):
            step.advance(copied)


def _copy_batch(folder: str, hard_links: bool, batch: Sequence[WorkspaceFile]) -> int:
    """Copy some files, and return their number."""
    for entry in batch:
        target = f"{folder}/{entry.path}"
        try:
            if entry.link is not None:
                os.symlink(entry.link, target)
            elif not (hard_links and _hard_link(entry, target)):
                _write(entry, target)
        except OSError as e:
            raise WorkspaceError(f"cannot write {target}: {e.strerror or e}") from None
    return len(batch)


def _hard_link(entry: WorkspaceFile, target: str) -> bool:
    """Create a hard link to a file; return False if that is not possible."""
    if entry.fs is not None:
        return False
    try:
        os.link(entry.source, target)
    except OSError:
        # The target is on another file system, or hard links are not supported. If the target
        # exists, the copy fails too.
        return False
    return True


def _write(entry: WorkspaceFile, target: str) -> None:
    # A file object would make four more system calls for each file.
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 | entry.mode)
    try:
        for chunk in entry.chunks():
            write_all(fd, chunk)
        # The umask or an ACL may have changed the mode. Setting it costs more than reading it.
        if stat.S_IMODE(os.fstat(fd).st_mode) != entry.mode:
            os.fchmod(fd, entry.mode)
    finally:
        os.close(fd)


def _check_absent(folder: str) -> None:
    if os.path.lexists(folder):
        raise FolderExistsError(
            f"{folder} exists; set job_dir to a new folder, to which the workspace is copied"
        )
    parent = os.path.dirname(folder)
    while not os.path.lexists(parent) and parent != os.path.dirname(parent):
        parent = os.path.dirname(parent)
    if not os.path.isdir(parent):
        raise WorkspaceError(f"cannot create {folder}: {parent} is not a folder")


def _rename_into_place(partial: str, folder: str) -> None:
    try:
        os.rename(partial, folder)
    except OSError as e:
        if os.path.lexists(folder):
            raise FolderExistsError(
                f"another process has created {folder} in the meantime"
            ) from None
        raise WorkspaceError(f"cannot create {folder}: {e.strerror or e}") from None
