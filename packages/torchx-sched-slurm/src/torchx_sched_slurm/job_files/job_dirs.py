"""The directories of jobs: copies of workspaces, and the file ``.torchxslurmjobdirs``.

Upstream's TorchX looks up the directories of jobs in ``.torchxslurmjobdirs``. This file is in the
current directory of the user's machine, not on the cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from torchx_kit.workspace.builder import Built, BuiltReference
from torchx_kit.workspace.dir_builder import DirBuilder, copy_workspace
from torchx_kit.workspace.file_options import follows_links, uses_gitignore
from torchx_kit.workspace.host_dir import check_size, is_tree, too_broad
from torchx_kit.workspace.ignore import IgnoreRules
from torchx_kit.workspace.tree import WorkspaceFile, tree_digest, workspace_files
from torchx_sched_slurm.job_files.script import RECORDS
from torchx_specs.errors import WorkspaceError
from torchx_specs.model.templates import macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.workspace.api import METADATA_KEY
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.model.app import Role

#: Name of the directory that contains the snapshots of workspaces, beside the records of jobs.
SNAPSHOTS = "workspaces"

# Files that submissions and jobs write are not copied: the records contain variables of earlier
# jobs, which may be secrets.
_FILES_OF_JOBS = IgnoreRules.parse(
    f"{RECORDS}\n*/{RECORDS}\n.torchxslurmjobdirs\n*/.torchxslurmjobdirs\n"
    "slurm-[0-9]*.out\n*/slurm-[0-9]*.out\nslurm-[0-9]*.err\n*/slurm-[0-9]*.err\n"
)

#: Rules that exclude no file: the files of a snapshot were selected when the snapshot was made.
EVERY_FILE = IgnoreRules.parse("!**\n")

#: Name of the file with the directories of jobs; each line is ``<job id> = <directory>``.
SLURM_JOB_DIRS = ".torchxslurmjobdirs"


def job_dirs() -> dict[str, str]:
    """Return the directories of jobs by job id; empty if the file cannot be read.

    Malformed lines are skipped.
    """
    try:
        with open(SLURM_JOB_DIRS, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError:
        return {}
    parts = (line.partition(" = ") for line in lines)
    return {job_id.strip(): job_dir for job_id, equals, job_dir in parts if equals}


def record_job_dir(app_id: str, job_dir: str) -> None:
    """Append a job to the file :data:`SLURM_JOB_DIRS`; log a warning if it cannot be written.

    The line is appended with a single write, so that concurrent submissions lose no lines.
    """
    line = f"{app_id.replace('@', ';')} = {job_dir}\n".encode("utf-8", "surrogateescape")
    try:
        with open(SLURM_JOB_DIRS, "ab", buffering=0) as file:
            file.write(line)
    except OSError as e:
        import logging  # imported here, so that start-up does not load it

        logging.getLogger(__name__).warning(
            "cannot write %s: %s; earlier versions of TorchX will not find the job's logs",
            SLURM_JOB_DIRS,
            e.strerror or e,
        )


class JobDirBuilder(DirBuilder):
    """Copies the workspace to ``job_dir``, or to a snapshot.

    A snapshot is a copy of the workspace in a directory that is named by a digest of the files, so
    that jobs with equal workspaces share it. Without ``job_dir``, the snapshot is below the current
    directory. If ``job_dir`` contains ``${app_id}``, the snapshot is below the fixed part of
    ``job_dir``, and the running job copies it to ``job_dir``.

    Args:
        snapshots: Whether to make snapshots; otherwise the workspace is copied only to ``job_dir``.
    """

    def __init__(self, snapshots: bool = True) -> None:
        self._snapshots = snapshots

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Return the reference to ``job_dir`` or to a snapshot; None if nothing is to be copied.

        Raises:
            WorkspaceError: The workspace cannot be read, or is too large for a snapshot.
            FolderExistsError: ``job_dir`` exists.
        """
        job_dir = str(cfg.get("job_dir") or "")
        if job_dir and macros.app_id not in job_dir:
            return super().plan(role_image, workspace, cfg)
        if not self._snapshots:
            return None
        if not job_dir and (broad := too_broad(workspace)):
            import logging  # imported here, so that start-up does not load it

            logging.getLogger(__name__).warning(
                "%s is not copied: the job runs in the current directory, where it sees later"
                " changes of its files",
                broad,
            )
            return None
        files = _files(workspace, cfg)
        if not job_dir:
            check_size(workspace, files)
        folder = os.path.join(local_path(fixed_part(job_dir)), RECORDS, SNAPSHOTS)
        digest = _digest(workspace, files)
        return BuiltReference(_snapshot(folder, files, digest), workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Copy the workspace, unless the snapshot exists.

        Raises:
            WorkspaceError: The workspace cannot be read or has changed since it was planned, or the
                copy cannot be written.
        """
        files = _files(plan.workspace, cfg)
        if is_snapshot(plan.image):
            digest = _digest(plan.workspace, files, save=True)
            if _snapshot(os.path.dirname(plan.image), files, digest, save=True) != plan.image:
                raise WorkspaceError(
                    f"{plan.workspace} has changed since the dry run that planned {plan.image};"
                    " submit again"
                )
            if _mark_as_used(plan.image):
                return Built(ready=True)
        try:
            copy_workspace(plan.workspace, plan.image, bool(cfg.get("job_dir_links")), files)
        except FileExistsError:
            if not is_snapshot(plan.image):
                raise
            # A concurrent submission has created the same snapshot.
        return Built(ready=True)


def fixed_part(job_dir: str) -> str:
    """Return the part of a path above the first component with ``${app_id}``, or the whole path.

    >>> fixed_part("/scratch/runs/job-${app_id}/out"), fixed_part("/scratch")
    ('/scratch/runs', '/scratch')

    Args:
        job_dir: The path. An empty result means the current directory.
    """
    before, macro, _ = job_dir.partition(macros.app_id)
    return os.path.dirname(before) if macro else before


def local_path(path: str) -> str:
    """Return the absolute path of a path on the user's machine."""
    return os.path.abspath(os.path.expanduser(path))


def is_snapshot(folder: str) -> bool:
    """Return True if a directory is the snapshot of a workspace."""
    parent = os.path.dirname(folder)
    return is_tree(folder) or parent.endswith(f"{os.sep}{RECORDS}{os.sep}{SNAPSHOTS}")


def image_and_copy(role: Role) -> tuple[str, str]:
    """Return the image of a role, and the directory that gets a copy of the role's workspace.

    The second item is an empty string if the workspace is not copied to a directory.
    """
    planned = role.metadata.get(METADATA_KEY)
    if isinstance(planned, Mapping) and planned.get("image") == role.image:
        if planned.get("type") == "dir":
            return str(planned.get("base", "")), role.image
    elif is_snapshot(role.image):  # built before, such as for all elements of a sweep
        return "", role.image
    return role.image, ""


def _files(workspace: Workspace, cfg: Mapping[str, CfgVal]) -> list[WorkspaceFile]:
    return workspace_files(
        workspace,
        last_rules=_FILES_OF_JOBS,
        follow_links=follows_links(cfg),
        gitignore=uses_gitignore(cfg),
    )


def _mark_as_used(snapshot: str) -> bool:
    """Set a snapshot's modification time for the pruner; return False if there is no snapshot."""
    try:
        os.utime(snapshot)
    except FileNotFoundError:
        return False
    except OSError:
        pass  # another user owns the snapshot; that user's pruner sees the record of this job
    return True


def _digest(workspace: Workspace, files: list[WorkspaceFile], save: bool = False) -> str:
    from torchx_kit.workspace.digests import FileDigests

    digests = FileDigests.for_workspace(workspace)
    digest = tree_digest(files, digests)
    if save:
        digests.save()
    return digest[:32]


def _snapshot(parent: str, files: list[WorkspaceFile], digest: str, save: bool = False) -> str:
    """Return the path of an unchanged snapshot of the files, or the path for a new snapshot."""
    number = 1
    while True:
        folder = os.path.join(parent, digest if number == 1 else f"{digest}-{number}")
        if not os.path.isdir(folder):
            return folder
        paths = {entry.path for entry in files}
        copy = Workspace({folder: ""})
        copied = [entry for entry in workspace_files(copy, (), EVERY_FILE) if entry.path in paths]
        if _digest(copy, copied, save) == digest:
            return folder
        number += 1
