"""The files of a folder that Git ignores."""

from __future__ import annotations

import os
import subprocess

from torchx_kit.workspace.ignore import IgnoreRules
from torchx_specs.errors import WorkspaceError, one_line

# The setting prevents Git from starting a program that the repository's configuration names.
_LIST = "git -c core.fsmonitor=false ls-files -z --others --ignored --exclude-standard --directory"


def git_ignored(root: str) -> IgnoreRules:
    """Return rules that exclude the files below ``root`` that Git ignores.

    All ``.gitignore`` files of the repository apply, and the user's settings of Git. Files that Git
    tracks are not excluded.

    Args:
        root: A folder of this machine, in a Git repository.

    Raises:
        WorkspaceError: Git is not installed, or the folder is not in a repository.
    """
    try:
        done = subprocess.run(_LIST.split(), cwd=root, capture_output=True, check=False)
    except OSError as e:
        raise WorkspaceError(f"option gitignore: cannot run git: {e.strerror or e}") from None
    if done.returncode:
        problem = one_line(done.stderr)
        raise WorkspaceError(f"option gitignore: git cannot list the files of {root}: {problem}")
    paths = os.fsdecode(done.stdout).split("\0")
    return IgnoreRules(excluded=frozenset(path.rstrip("/") for path in paths if path))
