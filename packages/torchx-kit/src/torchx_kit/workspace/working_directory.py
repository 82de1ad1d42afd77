"""The default workspace of commands."""

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
