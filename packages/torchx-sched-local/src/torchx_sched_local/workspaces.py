"""Copies workspaces to the folder of an app; the job runs in the copy.

The working directory is not copied: a job of a role with this workspace runs in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from torchx_kit.workspace.working_directory import is_working_directory
from torchx_sched_local.store.layout import PRIVATE
from torchx_specs.errors import RequestError
from torchx_specs.model.app import Role
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_sched_local.store.app_folder import AppFolder


def planned_copies(roles: Iterable[Role], log_dir: str) -> dict[Workspace, str]:
    """Return the folder of the copy of each workspace that must be copied.

    Args:
        roles: The roles of an app.
        log_dir: The app's folder.

    Raises:
        WorkspaceError: A workspace does not exist, or it is a home directory.
    """
    workspaces = dict.fromkeys(role.workspace for role in roles if role.workspace)
    copied = [one for one in workspaces if one and one.required and not is_working_directory(one)]
    if copied:
        from torchx_kit.workspace.tree import open_project

        for source in (source for one in copied for source in one.projects):
            open_project(source)
    return {one: f"{log_dir}/{PRIVATE}/workspaces/{index}" for index, one in enumerate(copied)}


def copy_workspaces(
    folder: AppFolder,
    workspaces: Mapping[str, Mapping[str, str]],
    follow_links: bool,
    gitignore: bool,
) -> None:
    """Copy workspaces to an app's folder.

    Args:
        folder: The app's folder.
        workspaces: The projects of each workspace, by the folder of its copy.
        follow_links: The option of this name.
        gitignore: The option of this name.

    Raises:
        RequestError: Another user could replace the copies.
        WorkspaceError: A workspace cannot be read or copied.
        OSError: A folder cannot be created.
    """
    from pathlib import Path

    from torchx_kit.trust import distrust_path
    from torchx_kit.workspace.dir_builder import copy_files
    from torchx_kit.workspace.tree import workspace_files

    for above in Path(os.path.realpath(folder.path)).parents:
        if reason := distrust_path(str(above), above.stat()):
            raise RequestError(
                f"cannot copy the workspace to {folder.path}: {above} is not safe: {reason};"
                " choose another folder with the option log_dir"
            )
    for target, projects in workspaces.items():
        folder.make_folder(target)
        files = workspace_files(
            Workspace({**projects}), follow_links=follow_links, gitignore=gitignore
        )
        copy_files(files, target)
