"""The log sink of ``file://`` URLs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from torchx_specs.errors import RequestError

# Files that are not complete yet have this prefix.
_INCOMPLETE = ".incomplete-"


class FolderSink:
    """Stores data in files below a folder; only this user can read the files.

    A file is replaced as a whole: a reader sees the old or the new data.

    Args:
        url: ``file:///absolute/path``. ``~`` is the home directory: ``file://~/logs``.

    Raises:
        RequestError: The URL has no absolute path, or has a query or a fragment.
    """

    def __init__(self, url: str) -> None:
        parsed = urlsplit(url)
        path = os.path.expanduser(unquote(parsed.netloc + parsed.path))
        if not os.path.isabs(path) or parsed.query or parsed.fragment:
            raise RequestError(
                f"'{url}' is not a URL of a folder; write file:// and an absolute path, such as"
                " file:///data/logs"
            )
        self._root = path

    def write(self, name: str, data: bytes, /) -> None:
        """Store data under a name, in place of older data."""
        path = self._path(name)
        folder = os.path.dirname(path)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd, temporary = tempfile.mkstemp(prefix=_INCOMPLETE, dir=folder)  # mode 0600
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise

    def read(self, name: str, /) -> bytes:
        """Return the data that is stored under a name.

        Raises:
            FileNotFoundError: No data is stored under this name.
        """
        with open(self._path(name), "rb") as file:
            return file.read()

    def list(self, folder: str, /) -> Iterator[str]:
        """Yield the names below a folder."""
        for parent, _, files in os.walk(self._path(folder)):
            inner = os.path.relpath(parent, self._root)
            for file in files:
                if not file.startswith(_INCOMPLETE):
                    yield f"{inner}/{file}"

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"'{name}' is not a valid name in a log sink")
        return os.path.join(self._root, *parts)
