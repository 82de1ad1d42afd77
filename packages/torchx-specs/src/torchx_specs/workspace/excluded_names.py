"""Names of files and folders that are not uploaded unless an ignore rule includes them."""

from __future__ import annotations

#: Names of files and folders that are not uploaded by default.
DEFAULT_EXCLUDES = frozenset({".git", ".venv", "node_modules", "__pycache__"})
#: Schedulers keep their records of jobs in folders whose names begin with this prefix, such as
#: ``.torchx-slurm``. The records contain the values of environment variables, so these folders are
#: not uploaded by default either.
RECORDS_PREFIX = ".torchx-"


def is_excluded(name: str) -> bool:
    """Return True if a file or folder of this name is not uploaded by default.

    >>> is_excluded(".git"), is_excluded(".torchx-acme"), is_excluded(".torchxignore")
    (True, True, False)
    """
    return name in DEFAULT_EXCLUDES or name.startswith(RECORDS_PREFIX)
