"""Reads the commit that is checked out in a folder."""

from __future__ import annotations

import subprocess


def checked_out_commit(folder: str) -> str | None:
    """Return the commit that is checked out in a folder or in one of its parents.

    The result is the same if files have uncommitted changes.

    Args:
        folder: Any folder.

    Returns:
        The commit, or None if Git is not installed, the folder is not in a repository of this user,
        or the repository has no commit.
    """
    command = ["git", "-C", folder, "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
