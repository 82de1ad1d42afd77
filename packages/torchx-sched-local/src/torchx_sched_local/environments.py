"""Finds the Python environment for the programs of a job, if the user has activated none."""

from __future__ import annotations

import functools
import os
import sys

from torchx_kit.trust import distrust_path

# An environment is active if one of these variables names it.
_ACTIVE = ("VIRTUAL_ENV", "CONDA_PREFIX")


def environment_path(cwd: str | None) -> str | None:
    """Return the folder of the programs of an environment that is not active, for a job's PATH.

    This is the environment ``.venv`` in the job's working directory, else the one of this process,
    as ``pipx`` and ``uv tool`` make them. The result is None if an environment is active, or if
    there is none.

    Args:
        cwd: The working directory of the replicas; None if the job has none.
    """
    if any(os.environ.get(name) for name in _ACTIVE):
        return None
    return _find(cwd, sys.prefix)


@functools.lru_cache(maxsize=16)
def _find(cwd: str | None, prefix: str) -> str | None:
    """Find the environment, and log which one is used; the result is cached."""
    path = os.path.join(prefix, "bin") if prefix != sys.base_prefix else None
    local = None if cwd is None else os.path.join(cwd, ".venv")
    if local is not None and os.path.exists(os.path.join(local, "pyvenv.cfg")):
        if reason := distrust_path(local, os.stat(local)):
            _log("WARNING", "%s is not used: %s", local, reason)
        else:
            path = os.path.join(local, "bin")
    if path is not None:
        _log("INFO", "no Python environment is active: programs are searched in %s first", path)
    return path


def _log(level: str, message: str, *values: str) -> None:
    import logging

    logging.getLogger(__name__).log(logging.getLevelName(level), message, *values)
