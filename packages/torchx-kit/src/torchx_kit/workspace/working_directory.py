"""The working directory as a workspace, which is the default of commands."""

from __future__ import annotations

import os
from typing import ClassVar

from torchx_specs.workspace.spec import Workspace


class WorkingDirectory(Workspace):
    """The working directory as the default workspace; schedulers without workspaces ignore it."""

    required: ClassVar[bool] = False

    @classmethod
    def now(cls) -> WorkingDirectory:
        """Return the working directory of this process."""
        return cls({os.getcwd(): ""})


def is_working_directory(workspace: Workspace) -> bool:
    """Return True if a workspace consists of the working directory of this process alone."""
    folders = (os.path.expanduser(source.removeprefix("file://")) for source in workspace.projects)
    return not any(workspace.projects.values()) and all(
        os.path.isdir(folder) and os.path.samefile(folder, os.curdir) for folder in folders
    )
