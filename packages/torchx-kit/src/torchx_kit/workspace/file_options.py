"""The options of all workspace builders that select the files of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_specs.options.run_options import CfgVal, runopts

_LINKS = "follow_links"
_GITIGNORE = "gitignore"


def add_file_options(opts: runopts) -> None:
    """Add the options ``follow_links`` and ``gitignore``."""
    opts.add(
        _LINKS,
        type_=bool,
        default=False,
        help="upload the files that symbolic links outside of the workspace lead to; otherwise such"
        " links are refused",
    )
    opts.add(
        _GITIGNORE,
        type_=bool,
        default=False,
        help="leave out the files that Git ignores (.gitignore)",
    )


def file_options(cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    """Return the values of these options, as keyword arguments of :func:`workspace_files`."""
    return {name: bool(cfg.get(name)) for name in (_LINKS, _GITIGNORE)}
