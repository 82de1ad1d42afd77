"""The directory in which TorchX keeps its own files."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def TORCHX_HOME(*subdirs: str) -> Path:  # noqa: N802 - a documented name
    """Return ``$TORCHX_HOME`` (default: ``~/.torchx``) or a directory below it.

    A missing directory is created (mode 0700).

    Raises:
        ConfigError: The directory cannot be created.
    """
    from pathlib import Path

    from torchx_specs.errors import ConfigError

    path = home_path(*subdirs)
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError as e:
        raise ConfigError(
            f"cannot create {path}: {e.strerror or e}; set TORCHX_HOME to a writable directory"
        ) from None
    return Path(path)


def home_path(*subdirs: str) -> str:
    """Return the path that :func:`TORCHX_HOME` returns, without creating it."""
    base = os.environ.get("TORCHX_HOME")
    if not base:
        # Programs and tests replace Path.home(). Without pathlib imported, nobody can have replaced
        # the method, and the import would slow down every start.
        pathlib = sys.modules.get("pathlib")
        home = pathlib.Path.home() if pathlib else os.path.expanduser("~")
        base = os.path.join(home, ".torchx")
    return os.path.join(base, *subdirs)
