"""Workspaces copied to a folder: for schedulers whose jobs see this machine's file system."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from torchx_kit.workspace.tree import WorkspaceFile, open_project, workspace_files
from torchx_specs.errors import WorkspaceError
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.api import WorkspaceMixin
from torchx_specs.workspace.builder import BuilderOutput, Built, BuiltReference, WorkspaceBuilder
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.model.app import Role


_THREADS = 4
#: As many files at a time go to one thread.
_BATCH = 250
_BETWEEN_LINES = 5.0


class FolderExistsError(WorkspaceError, FileExistsError):
    """The folder that a workspace should be copied to is there already."""


class DirBuilder(WorkspaceBuilder):
    """Copies the workspace to the folder named by ``job_dir``, which becomes the role's image.

    Without ``job_dir`` the workspace stays behind, and the role as it is.
    """

    output: ClassVar[BuilderOutput] = "folder"

    def opts(self) -> runopts:
        """Returns ``job_dir`` and ``job_dir_links``."""
        opts = runopts()
        opts.add(
            "job_dir",
            type_=str,
            help="copy the workspace to this folder: a new one, on a file system the job sees",
        )
        opts.add(
            "job_dir_links",
            type_=bool,
            default=False,
            help="files that are on the file system of job_dir are hard-linked, not copied: quick,"
            " but a file that is written to in place is then the same on either side",
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
        copy_workspace(plan.workspace, plan.image, bool(cfg.get("job_dir_links")))
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


def copy_workspace(workspace: Workspace, folder: str, hard_links: bool = False) -> None:
    """Copies a workspace to a new folder, wholly or not at all, with file modes and links.

    Args:
        workspace: what to copy
        folder: must not exist; the folder it is in must
        hard_links: files of the same file system are linked instead of copied: that takes no space,
            and who writes into one of them in place writes into the other

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
        copy_files(files, partial, hard_links)
        os.chmod(partial, 0o777 & ~_umask(partial))
        _move(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def copy_files(files: Iterable[WorkspaceFile], folder: str, hard_links: bool = False) -> None:
    """Writes the files of a workspace into an existing folder, several at a time; logs tell how far
    it is if that takes long.

    Args:
        files: what to write
        folder: where to
        hard_links: as in :func:`copy_workspace`

    Raises:
        WorkspaceError: something cannot be read or written
    """
    files = list(files)
    parents = {entry.path.rpartition("/")[0] for entry in files}
    for parent in sorted(parents - {""}):
        try:
            os.makedirs(f"{folder}/{parent}", exist_ok=True)
        except OSError as e:
            raise WorkspaceError(f"cannot write {folder}/{parent}: {e.strerror or e}") from None
    batches = [files[at : at + _BATCH] for at in range(0, len(files), _BATCH)]
    progress = _Progress(len(files))
    if len(batches) < 2:
        for batch in batches:
            _copy_batch(batch, folder, hard_links, progress)
        return
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    with ThreadPoolExecutor(_THREADS) as pool:
        calls = [pool.submit(_copy_batch, b, folder, hard_links, progress) for b in batches]
        try:
            wait(calls, return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(cancel_futures=True)
    for call in calls:
        if not call.cancelled():
            call.result()


class _Progress:
    """Tells in the logs how many files are copied, every few seconds."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._told = time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._told >= _BETWEEN_LINES:
            import logging

            self._told = now
            logging.getLogger(__name__).info(
                "workspace: %d of %d files copied", self._done, self._total
            )


def _copy_batch(
    batch: Iterable[WorkspaceFile], folder: str, hard_links: bool, progress: _Progress
) -> None:
    count = 0
    for entry in batch:
        target = f"{folder}/{entry.path}"
        count += 1
        try:
            if entry.link is not None:
                os.symlink(entry.link, target)
            elif not (hard_links and _linked(entry, target)):
                _write(entry, target)
        except OSError as e:
            raise WorkspaceError(f"cannot write {target}: {e.strerror or e}") from None
    progress.advance(count)


def _linked(entry: WorkspaceFile, target: str) -> bool:
    """Links a file; returns False where that cannot be."""
    if entry.fs is not None:
        return False
    try:
        os.link(entry.source, target)
    except FileExistsError:
        raise
    except OSError:
        return False  # another file system, or one without links
    return True


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
