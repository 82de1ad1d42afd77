"""Finds out whether the module ``torchx`` is ours, where upstream's release is installed, too."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from torchx_specs.version import __version__

MODULE = "torchx"
#: What the facade registers, and nobody else.
_BRIDGES = "torchx.bridges.plugin"


class Owner(NamedTuple):
    """A distribution that installs the module."""

    name: str
    version: str
    ours: bool
    folder: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def conflicts(path: Iterable[str] | None = None) -> Iterator[tuple[Owner, str]]:
    """Yields each distribution that takes the module's place, and what to do about it.

    Args:
        path: folders searched for installed distributions, ``sys.path`` if None
    """
    owners = list(_owners(path))
    ours = next((owner for owner in owners if owner.ours), None)
    for owner in owners:
        if owner is ours:
            continue
        if ours is None:
            what = f"the module '{MODULE}' is that of {owner}, and not the one that belongs to this"
            remedy = f"pip uninstall {owner.name}; pip install {MODULE}=={__version__}"
        else:
            what = f"{owner} and {ours} both install the module '{MODULE}': {_which(owner, ours)}"
            # the command, too: they install a script of that name
            remedy = (
                f"pip uninstall {owner.name}; pip install --force-reinstall --no-deps"
                f" {MODULE}=={ours.version} {MODULE}-cli=={ours.version}"
            )
        yield owner, f"{what}; run: {remedy}"


def _which(owner: Owner, ours: Owner) -> str:
    spec = importlib.util.find_spec(MODULE)
    found = str(Path(spec.origin).parent.parent) if spec is not None and spec.origin else ""
    if found != owner.folder:
        return f"it is imported from {found}"
    if ours.folder != owner.folder:
        return f"that of {owner.name} is imported, from {found}"
    return f"their files are mixed in {found}"


def _owners(path: Iterable[str] | None) -> Iterator[Owner]:
    seen: set[str] = set()
    for dist in importlib.metadata.distributions(path=list(sys.path if path is None else path)):
        name = dist.metadata["Name"] or ""
        folder = str(dist.locate_file(""))
        if name in seen:
            continue
        seen.add(name)
        ours = any(ep.value == _BRIDGES for ep in dist.entry_points if ep.group == MODULE)
        # an editable installation's files are elsewhere
        if ours or f"\n{MODULE}/__init__.py," in f"\n{dist.read_text('RECORD') or ''}":
            yield Owner(name, dist.version, ours, folder)
