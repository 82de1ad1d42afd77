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
        base = os.path.join(_user_home(), ".torchx")
    return os.path.join(base, *subdirs)


def _user_home() -> str:
    # Programs and tests may replace Path.home(), so call it if pathlib is loaded. Otherwise nobody
    # can have replaced it, and importing pathlib would slow down every start.
    if "pathlib" not in sys.modules:
        return os.path.expanduser("~")
    # Another thread may be importing pathlib; an import statement waits until that is done.
    from pathlib import Path

    return str(Path.home())
