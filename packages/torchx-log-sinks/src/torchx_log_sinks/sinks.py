"""Log sinks: folders, object stores, and those in the sections ``[log_sink:NAME]``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from torchx_kit.atomic_files import write_atomically
from torchx_specs.errors import BackendError, RequestError, one_line
from torchx_specs.plugins.manager import get_manager
from torchx_specs.redaction import masked_text

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import LogSink

logger = logging.getLogger(__name__)

# The sink that handles every scheme that has no sink of its own.
_ANY_SCHEME = "fsspec"


@dataclass(frozen=True)
class ConfiguredSink:
    """A log sink with its name in the configuration.

    Args:
        name: NAME of the section ``[log_sink:NAME]``.
        url: The URL in the section.
        sink: The sink.
    """

    name: str
    url: str
    sink: LogSink

    def __str__(self) -> str:
        return f"{self.name} ({self.url})"


def open_sinks(urls: Mapping[str, str]) -> list[ConfiguredSink]:
    """Return the log sinks of some URLs.

    A sink that cannot be created causes a warning and no error, because a job must not fail for
    the copy of its logs.

    Args:
        urls: The URLs by the names of the sections.
    """
    found = []
    for name, url in urls.items():
        try:
            found.append(ConfiguredSink(name, url, _create(url)))
        except Exception as e:  # a plugin may raise any exception
            logger.warning("[log_sink:%s] is ignored: %s", name, one_line(e))
    return found


def _create(url: str) -> LogSink:
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise RequestError(
            f"'{url}' is not a URL; write one such as file:///data/logs or s3://bucket/prefix"
        )
    sinks = get_manager().log_sinks()
    record = sinks.find(scheme) or sinks.find(_ANY_SCHEME)
    if record is None:
        hint = sinks.install_hint(scheme)
        raise RequestError(f"no plugin handles URLs that begin with {scheme}://{hint}")
    sink: LogSink = record.load()(url)
    return sink


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
        write_atomically(path, data)

    def read(self, name: str, /) -> bytes:
        """Return the data that is stored under a name.

        Raises:
            FileNotFoundError: No data is stored under this name.
        """
        return Path(self._path(name)).read_bytes()

    def list(self, folder: str, /) -> Iterator[str]:
        """Yield the names below a folder."""
        for parent, _, files in os.walk(self._path(folder)):
            inner = os.path.relpath(parent, self._root)
            for file in files:
                if not file.startswith("."):  # an incomplete file
                    yield f"{inner}/{file}"

    def _path(self, name: str) -> str:
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"'{name}' is not a valid name in a log sink")
        return os.path.join(self._root, *parts)


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
