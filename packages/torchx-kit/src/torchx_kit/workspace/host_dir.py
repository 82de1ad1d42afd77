"""The workspace type ``dir`` of batch systems: the job runs in a tree, a copy of the workspace.

A tree is a directory that is named by a digest of the files. Jobs with equal workspaces share it.
Only files that no tree of the machine has are copied.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Mapping

from torchx_kit.hosts.api import Host
from torchx_kit.scripts.containers import runs_on_host
from torchx_kit.workspace.builder import Built, BuiltReference
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_kit.workspace.ignore import IgnoreRules
from torchx_kit.workspace.tree import WorkspaceFile, home_or_root, tree_digest
from torchx_specs.errors import WorkspaceError
from torchx_specs.model.templates import macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.workspace.spec import Workspace

#: The directory of trees on another machine.
TREES = "~/.torchx/workspaces"
#: Maximum size of a workspace that is copied without the option ``job_dir``, in bytes.
MAX_SIZE = 1 << 30
# How long a tree that was marked as used counts as such, in seconds: a sweep submits many jobs from
# one tree.
_MARKED_SECONDS = 3600.0
# The paths of trees: on another machine, and beside the records of jobs on this one.
_TREE = re.compile(r"/\.torchx(-\w+)?/workspaces/")


class HostDirBuilder(DirBuilder):
    """Copies the workspace to a tree, in which the job runs.

    With the option ``job_dir``, the workspace is copied to this directory of this machine; on
    another machine, the job runs there and nothing is copied. If the option contains ``${app_id}``,
    the job copies a tree to ``job_dir``.

    Args:
        host: The machine.
        in_containers: Whether a job that runs in a container can use a tree.
        beside: The directory of trees on this machine, relative to the directory of the jobs.
        left_out: Lines of rules for files of earlier jobs, which are not copied.
    """

    def __init__(
        self, host: Host, in_containers: bool = False, beside: str = "", left_out: str = ""
    ) -> None:
        self._host = host
        self._in_containers = in_containers
        self._beside = beside
        self._left_out = IgnoreRules.parse(left_out)
        # The paths of trees on the host, and when they were marked as used, by the planned name.
        self._paths: dict[str, tuple[str, float]] = {}

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Return the name of a tree or ``job_dir``; None, with a warning, if nothing is copied.

        Raises:
            WorkspaceError: The workspace cannot be read, or is too large.
            FolderExistsError: ``job_dir`` exists.
        """
        job_dir = str(cfg.get("job_dir") or "")
        is_fixed = bool(job_dir) and macros.app_id not in job_dir
        if is_fixed and not self._host.name:
            return super().plan(role_image, workspace, cfg)
        broad = "" if job_dir else too_broad(workspace)
        is_container = not self._in_containers and not runs_on_host(role_image)
        if broad or is_container or is_fixed:
            import logging  # imported here, so that start-up does not load it

            logging.getLogger(__name__).warning(
                "%s is not copied%s: the job sees the files that are there, and later changes of"
                " them",
                broad or "the workspace",
                f" to {self._host.name}" if self._host.name else "",
            )
            return None
        files = self._files(workspace, cfg)
        if not job_dir:
            check_size(workspace, files)
        folder = TREES
        if not self._host.name:
            folder = posixpath.join(self._host.resolve(fixed_part(job_dir)), self._beside)
        return BuiltReference(f"{folder}/{_digests(workspace, files)[0]}", workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Copy the workspace, unless an unchanged tree exists.

        Raises:
            WorkspaceError: The workspace cannot be read or has changed since it was planned, or the
                copy cannot be written.
            HostError: The tree cannot be written, or the machine cannot be reached.
        """
        if not is_tree(plan.image):
            return super().build(plan, cfg)
        path = self._existing(plan.image)
        if not path:
            files = self._files(plan.workspace, cfg)
            digest, digests = _digests(plan.workspace, files, save=True)
            folder, name = posixpath.split(plan.image)
            if digest != name:
                raise WorkspaceError(
                    f"{plan.workspace} has changed since the dry run that planned {plan.image};"
                    " submit again"
                )
            path = self._host.put_tree(self._host.resolve(folder), name, files, digests)
        self._paths[plan.image] = path, time.monotonic()
        return Built(ready=True)

    def path(self, image: str) -> str:
        """Return the path of a tree on the machine for the planned name, and mark it as used."""
        path, when = self._paths.get(image, ("", 0.0))
        if not path or time.monotonic() - when > _MARKED_SECONDS:
            path = self._existing(image) or path or self._host.resolve(image)
            self._paths[image] = path, time.monotonic()
        return path

    def _existing(self, image: str) -> str:
        folder, name = posixpath.split(image)
        return self._host.find_tree(self._host.resolve(folder), name)


def is_tree(path: str) -> bool:
    """Return True if a directory is a tree, by its planned name or its path."""
    return _TREE.search(path) is not None


def fixed_part(job_dir: str) -> str:
    """Return the part of a path above the first component with ``${app_id}``, or the whole path.

    >>> fixed_part("/scratch/runs/job-${app_id}/out"), fixed_part("/scratch")
    ('/scratch/runs', '/scratch')

    Args:
        job_dir: The path. An empty result means the current directory.
    """
    before, macro, _ = job_dir.partition(macros.app_id)
    return os.path.dirname(before) if macro else before


def too_broad(workspace: Workspace) -> str:
    """Return the first project that is the home or root directory, or an empty string."""
    local = (source for source in workspace.projects if "://" not in source)
    return next((source for source in local if home_or_root(os.path.expanduser(source))), "")


def check_size(workspace: Workspace, files: list[WorkspaceFile]) -> None:
    """Raise an error if a workspace is larger than :data:`MAX_SIZE`.

    Raises:
        WorkspaceError: It is too large.
    """
    size = sum(entry.size for entry in files)
    if size > MAX_SIZE:
        raise WorkspaceError(
            f"workspace {workspace} has {size / 1e9:.1f} GB; a snapshot has at most"
            f" {MAX_SIZE / 1e9:.1f} GB. List its data in .torchxignore, copy it all by the"
            " option job_dir, or pass --workspace='' to run in the current directory"
        )


def _digests(
    workspace: Workspace, files: list[WorkspaceFile], save: bool = False
) -> tuple[str, list[bytes]]:
    """Return the name of a tree, and the digests of its files."""
    from torchx_kit.workspace.digests import FileDigests

    known = FileDigests.for_workspace(workspace)
    digest = tree_digest(files, known)
    digests = known.digests(files)
    if save:
        known.save()
    return digest[:32], digests
