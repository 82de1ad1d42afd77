"""Reads the commit that is checked out in a folder."""

from __future__ import annotations

import os
import subprocess

# Set inside of a hook of Git, and then name the hook's repository instead of the folder's.
_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE")
# A folder on a network may not answer. In seconds.
_TIME_LIMIT = 10.0


def checked_out_commit(folder: str) -> str | None:
    """Return the commit that is checked out in a folder or in one of its parents.

    The result is the same if files have uncommitted changes.

    Args:
        folder: Any folder.

    Returns:
        The commit, or None if Git is not installed or does not answer, the folder is not in a
        repository of this user, or the repository has no commit.
    """
    command = ["git", "-C", folder, "rev-parse", "--verify", "--quiet", "HEAD"]
    environment = {k: v for k, v in os.environ.items() if k not in _REPOSITORY_VARIABLES}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
