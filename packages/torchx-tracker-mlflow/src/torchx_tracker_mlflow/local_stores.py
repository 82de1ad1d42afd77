"""Stores on this machine: folders of files, and databases.

``mlflow-skinny`` has no database store, so the tracker's default is a file store, which every
version of MLflow reads and writes. MLflow 3.13 and later open a file store only if the environment
variable ``MLFLOW_ALLOW_FILE_STORE`` is true.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock

_ENV_ALLOW = "MLFLOW_ALLOW_FILE_STORE"
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_lock = Lock()


@contextmanager
def allow_file_store(uri: str) -> Iterator[None]:
    """Return a context in which MLflow opens the file store of a tracking URI.

    The environment is unchanged afterwards.

    Args:
        uri: The tracking URI; the URI of another kind of store changes nothing.
    """
    if not _is_folder(uri):
        yield
        return
    with _lock:
        is_set = _ENV_ALLOW in os.environ
        if not is_set:
            os.environ[_ENV_ALLOW] = "true"
        try:
            yield
        finally:
            if not is_set:
                os.environ.pop(_ENV_ALLOW, None)


def missing_library(uri: str) -> str:
    """Return which library is missing and how to install it; an empty text if none is missing."""
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in _DATABASES or find_spec("sqlalchemy") is not None:
        return ""
    return f"mlflow-skinny has no store for {scheme} databases; run: pip install mlflow"


def _is_folder(uri: str) -> bool:
    return uri.startswith("file:") or ("://" not in uri and not uri.startswith("databricks"))
