"""The entry points of installed distributions.

They are in the file ``entry_points.txt`` in the ``*.dist-info`` (or ``*.egg-info``) folder of each
distribution; the packaging specification "Entry points" defines its format. This module reads the
files itself, because :mod:`importlib.metadata` takes longer than the rest of ``torchx --help``.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class EntryPoint(NamedTuple):
    """One line of an ``entry_points.txt``."""

    group: str
    name: str
    value: str
    distribution: str
    version: str


def entry_points(*groups: str, path: Iterable[str] | None = None) -> list[EntryPoint]:
    """Return the entry points of some groups, sorted by distribution, group and name.

    Only groups whose names begin with ``torchx`` are read; by default, all of them. The default for
    ``path``, the folders to search, is ``sys.path``. If a distribution is installed twice, only the
    installation that comes first on ``path`` counts, as for imports.
    """
    folders = sys.path if path is None else path
    found = _read_all(tuple((folder, _mtime(folder)) for folder in folders))
    return [ep for ep in found if ep.group in groups] if groups else list(found)


@functools.lru_cache(maxsize=1)
def _read_all(folders: tuple[tuple[str, float], ...]) -> list[EntryPoint]:
    """Read the entry points; cache them until the modification time of a folder changes."""
    seen: set[str] = set()
    found: list[EntryPoint] = []
    for folder, _ in folders:
        for name, version, text in _distributions(folder or os.curdir):
            normalized = normalize(name)
            if normalized not in seen:
                seen.add(normalized)
                found += parse(text, name, version)
    return sorted(found, key=lambda ep: (normalize(ep.distribution), ep.group, ep.name))


def normalize(distribution: str) -> str:
    """Return the normalized name of a distribution (``Torchx_Specs`` becomes ``torchx-specs``)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _mtime(entry: str) -> float:
    try:
        return os.stat(entry or os.curdir).st_mtime
    except OSError:
        return 0.0


def _distributions(entry: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, version and ``entry_points.txt`` of each distribution in one path entry."""
    try:
        names = sorted(os.listdir(entry))
    except NotADirectoryError:  # a zip file
        from importlib.metadata import distributions

        for dist in distributions(path=[entry]):
            yield dist.metadata["Name"], dist.version, dist.read_text("entry_points.txt") or ""
        return
    except OSError:
        return
    for name in names:
        stem, dot, suffix = name.rpartition(".")
        # pip leaves a folder `~...` when it fails to uninstall
        if not dot or suffix not in ("dist-info", "egg-info") or name[0] == "~":
            continue
        try:
            with open(f"{entry}/{name}/entry_points.txt", "rb", buffering=0) as fp:
                data = fp.read()
        except OSError:
            data = b""
        project, _, version = stem.partition("-")
        # A distribution without entry points also shadows a later one of the same name.
        yield project, version.partition("-")[0], data.decode("utf-8", "replace")


def parse(text: str, distribution: str, version: str) -> list[EntryPoint]:
    """Return the entry points in an ``entry_points.txt`` whose group begins with ``torchx``."""
    if "[torchx" not in text:
        return []
    found: list[EntryPoint] = []
    group = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and line[-1] == "]":
            group = line[1:-1].strip()
        elif group.startswith("torchx") and "=" in line:
            name, _, value = line.partition("=")
            value = value.partition("[")[0].strip()  # ignore extras, which are obsolete
            if name.strip() and value:
                found.append(EntryPoint(group, name.strip(), value, distribution, version))
    return found
