"""Detects another distribution that installs the module ``torchx``, such as TorchX 0.7."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from torchx_specs.plugins.records import Origin
from torchx_specs.version import __version__

#: A distribution with this entry point comes from this project. Any other distribution that
#: installs the module conflicts with it.
_BRIDGES = "torchx.bridges.plugin"


def conflicts(path: Iterable[str] | None = None) -> Iterator[tuple[Origin, str]]:
    """Yield each conflicting distribution, with a message that contains the remedy.

    Args:
        path: Folders to search for installed distributions; None means ``sys.path``.
    """
    others: dict[str, Distribution] = {}
    ours: Distribution | None = None
    for found in distributions(path=list(sys.path if path is None else path)):
        if any(ep.value == _BRIDGES for ep in found.entry_points if ep.group == "torchx"):
            ours = ours or found
        # An editable installation does not list its files in RECORD.
        elif "\ntorchx/__init__.py," in f"\n{found.read_text('RECORD') or ''}":
            others.setdefault(found.name, found)
    for name, other in others.items():
        text = f"{name} {other.version}"
        if ours is None:
            what = f"the module 'torchx' is installed by {text}, not by TorchX anew"
            remedy = f"pip uninstall {name}; pip install torchx=={__version__}"
        else:
            spec = importlib.util.find_spec("torchx")
            folder = Path(spec.origin).parent.parent if spec and spec.origin else "nowhere"
            what = f"{text} and {ours.name} {ours.version} both install the module 'torchx', which"
            what += f" is imported from {folder}"
            # Both distributions also install a script `torchx`: reinstalling torchx-cli restores
            # our script.
            remedy = (
                f"pip uninstall {name}; pip install --force-reinstall --no-deps"
                f" torchx=={ours.version} torchx-cli=={ours.version}"
            )
        yield Origin(name, other.version), f"{what}; run: {remedy}"
