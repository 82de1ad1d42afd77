"""Detects another distribution that installs the module ``torchx``, such as TorchX 0.7."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from torchx_specs.version import __version__

MODULE = "torchx"
#: A distribution with this entry point comes from this project. Any other distribution that
#: installs the module conflicts with it.
_BRIDGES = "torchx.bridges.plugin"


class Owner(NamedTuple):
    """A distribution that installs the module ``torchx``.

    Attributes:
        name: Name of the distribution.
        version: Version of the distribution.
        ours: Whether this project released the distribution.
        folder: The folder into which the module is installed.
    """

    name: str
    version: str
    ours: bool
    folder: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def conflicts(path: Iterable[str] | None = None) -> Iterator[tuple[Owner, str]]:
    """Yield each conflicting distribution, with a message that contains the remedy.

    Args:
        path: Folders to search for installed distributions; None means ``sys.path``.
    """
    owners = list(_owners(path))
    ours = next((owner for owner in owners if owner.ours), None)
    for owner in owners:
        if owner is ours:
            continue
        if ours is None:
            what = f"the module '{MODULE}' is installed by {owner}, not by TorchX anew"
            remedy = f"pip uninstall {owner.name}; pip install {MODULE}=={__version__}"
        else:
            what = f"{owner} and {ours} both install the module '{MODULE}': {_which(owner, ours)}"
            # Both distributions also install a script `torchx`: reinstalling torchx-cli restores
            # our script.
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
        return f"the module of {owner.name} is imported, from {found}"
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
        # An editable installation does not list its files in RECORD.
        if ours or f"\n{MODULE}/__init__.py," in f"\n{dist.read_text('RECORD') or ''}":
            yield Owner(name, dist.version, ours, folder)
