"""The log sink of URLs that fsspec can open: object stores, and file systems of other machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchx_specs.errors import BackendError, RequestError
from torchx_specs.redaction import masked_text


class FsspecSink:
    """Stores data in the objects below a URL, such as ``s3://bucket/prefix``.

    The library of the file system, such as s3fs, must be installed. This library reads the
    credentials from environment variables or from fsspec's configuration. The file system is opened
    at the first call.

    Args:
        url: The URL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: tuple[Any, str] | None = None

    def write(self, name: str, data: bytes, /) -> None:
        """Store data under a name, in place of older data."""
        system, path = self._open(name)
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
        system.pipe_file(path, data)

    def read(self, name: str, /) -> bytes:
        """Return the data that is stored under a name.

        Raises:
            FileNotFoundError: No data is stored under this name.
        """
        system, path = self._open(name)
        data: bytes = system.cat_file(path)
        return data

    def list(self, folder: str, /) -> Iterator[str]:
        """Yield the names below a folder."""
        system, path = self._open(folder)
        root = path.removesuffix(folder)
        system.invalidate_cache()
        try:
            found = system.find(path)
        except FileNotFoundError:
            return
        for object_path in found:
            yield object_path.removeprefix(root)

    def _open(self, name: str) -> tuple[Any, str]:
        """Return the file system, and the path of a name in it.

        Raises:
            BackendError: The file system cannot be opened.
            RequestError: fsspec does not know the URL, or a library is missing.
        """
        if self._opened is None:
            from fsspec.core import url_to_fs

            try:
                system, root = url_to_fs(self._url)
            except (ImportError, ValueError) as e:
                raise RequestError(f"'{masked_text(self._url)}' cannot be opened: {e}") from e
            except Exception as e:
                raise BackendError(f"'{masked_text(self._url)}' cannot be opened: {e}") from e
            self._opened = system, root.rstrip("/")
        system, root = self._opened
        return system, f"{root}/{name}"
