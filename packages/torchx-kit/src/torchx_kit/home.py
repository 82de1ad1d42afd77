"""The directory in which TorchX keeps its own files."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING

from torchx_kit.trust import ENV_TRUSTED_FOLDERS, distrust_path

if TYPE_CHECKING:
    from pathlib import Path


def TORCHX_HOME(*subdirs: str) -> Path:  # noqa: N802 - a documented name
    """Return ``$TORCHX_HOME`` (default: ``~/.torchx``) or a directory below it.

    Missing directories are created (mode 0700).

    Raises:
        ConfigError: A directory cannot be created, or other users can write to it.
    """
    from pathlib import Path

    path = home_path(*subdirs)
    make_private(path)
    return Path(path)


def make_private(path: str) -> None:
    """Create a directory and the missing ones above it, which nobody else can use.

    Raises:
        ConfigError: A directory cannot be created.
    """
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    try:
        for path in reversed(missing):  # the mode of os.makedirs() is that of the last one only
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                os.listdir(path)  # another process has created it, or it is a file
    except OSError as e:
        from torchx_specs.errors import ConfigError

        raise ConfigError(
            f"cannot create {path}: {e.strerror or e}; set TORCHX_HOME to a writable directory"
        ) from None


def home_path(*subdirs: str) -> str:
    """Return the path that :func:`TORCHX_HOME` returns, without creating it.

    Raises:
        ConfigError: Another user owns one of the directories, or can write to it, so that its files
            may not be this user's. Directories in ``$TORCHX_TRUSTED_FOLDERS`` are not checked.
    """
    path = os.environ.get("TORCHX_HOME")
    if not path:
        path = os.path.join(_user_home(), ".torchx")
    _check(path)
    for name in subdirs:
        path = os.path.join(path, name)
        _check(path)
    return path


def _check(path: str) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return  # whoever uses the directory reports the error
    # Whoever opens a file checks it then, if users share its directory.
    if stat.S_ISDIR(status.st_mode) and (reason := distrust_path(path, status)):
        from torchx_specs.errors import ConfigError

        raise ConfigError(
            f"{path}: {reason}, so nothing in it is used; run `chmod go-w {path}` if only you have"
            f" used it, set TORCHX_HOME to another folder, or add it to {ENV_TRUSTED_FOLDERS}"
        )


def _user_home() -> str:
    # Programs and tests may replace Path.home(), so call it if pathlib is loaded. Otherwise nobody
    # can have replaced it, and importing pathlib would slow down every start.
    if "pathlib" not in sys.modules:
        return os.path.expanduser("~")
    # Another thread may be importing pathlib; an import statement waits until that is done.
    from pathlib import Path

    return str(Path.home())
