"""The workspace type ``dir`` for a scheduler on another machine: a tree in the home directory.

A tree is a copy of a workspace in a directory that is named by a digest of the files. Jobs with
equal workspaces share it. Only files that no tree of the machine has are sent.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping

from torchx_kit.hosts.api import Host
from torchx_kit.scripts.containers import runs_on_host
from torchx_kit.workspace.builder import Built, BuiltReference
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_kit.workspace.file_options import follows_links, uses_gitignore
from torchx_kit.workspace.tree import WorkspaceFile, home_or_root, tree_digest, workspace_files
from torchx_specs.errors import WorkspaceError
from torchx_specs.model.templates import macros
from torchx_specs.options.run_options import CfgVal
from torchx_specs.workspace.spec import Workspace

#: The directory of trees on the other machine.
TREES = "~/.torchx/workspaces"
#: Maximum size of a workspace that is copied without the option ``job_dir``, in bytes.
MAX_SIZE = 1 << 30


class HostDirBuilder(DirBuilder):
    """Copies the workspace to a tree on another machine, in which the job runs.

    With the option ``job_dir``, the job runs in this directory of the machine, and nothing is
    copied, unless the option contains ``${app_id}``: such a job copies the tree to ``job_dir``.

    Args:
        host: The machine.
        in_containers: Whether a job that runs in a container can use a tree.
    """

    def __init__(self, host: Host, in_containers: bool = False) -> None:
        self._host = host
        self._in_containers = in_containers
        # The paths of trees on the host, by the planned name.
        self._paths: dict[str, str] = {}

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Return the name of a tree; log a warning and return None if nothing is to be copied.

        Raises:
            WorkspaceError: The workspace cannot be read, or is too large.
        """
        job_dir = str(cfg.get("job_dir") or "")
        broad = too_broad(workspace)
        is_container = not self._in_containers and not runs_on_host(role_image)
        if broad or is_container or (job_dir and macros.app_id not in job_dir):
            import logging  # imported here, so that start-up does not load it

            logging.getLogger(__name__).warning(
                "%s is not copied to %s: the job sees only the files that are there",
                broad or "the workspace",
                self._host.name,
            )
            return None
        files = _files(workspace, cfg)
        check_size(workspace, files)
        return BuiltReference(_name(workspace, files)[0], workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Copy the workspace, unless an unchanged tree exists.

        Raises:
            WorkspaceError: The workspace cannot be read or has changed since it was planned.
            HostError: The tree cannot be written, or the machine cannot be reached.
        """
        folder, name = posixpath.split(plan.image)
        folder = self._host.resolve(folder)
        path = self._host.find_tree(folder, name)
        if not path:
            files = _files(plan.workspace, cfg)
            image, digests = _name(plan.workspace, files, save=True)
            if image != plan.image:
                raise WorkspaceError(
                    f"{plan.workspace} has changed since the dry run that planned {plan.image};"
                    " submit again"
                )
            path = self._host.put_tree(folder, name, files, digests)
        self._paths[plan.image] = path
        return Built(ready=True)

    def path(self, image: str) -> str:
        """Return the path of a tree on the machine for the planned name."""
        return self._paths.get(image) or self._host.resolve(f"{image}/files")


def is_tree(path: str) -> bool:
    """Return True if a directory is a tree on another machine, by its planned name or its path."""
    return f"{TREES[1:]}/" in path


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


def _files(workspace: Workspace, cfg: Mapping[str, CfgVal]) -> list[WorkspaceFile]:
    return workspace_files(
        workspace, follow_links=follows_links(cfg), gitignore=uses_gitignore(cfg)
    )


def _name(
    workspace: Workspace, files: list[WorkspaceFile], save: bool = False
) -> tuple[str, list[bytes]]:
    """Return the planned name of a tree, and the digests of its files."""
    from torchx_kit.workspace.digests import FileDigests

    known = FileDigests.for_workspace(workspace)
    digest = tree_digest(files, known)
    digests = known.digests(files)
    if save:
        known.save()
    return f"{TREES}/{digest[:32]}", digests
