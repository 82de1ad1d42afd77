"""The option of all workspace builders for symbolic links that lead outside of the workspace."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_specs.options.run_options import CfgVal, runopts

_NAME = "follow_links"


def add_link_option(opts: runopts) -> None:
    """Add the option ``follow_links``."""
    opts.add(
        _NAME,
        type_=bool,
        default=False,
        help="upload the files that symbolic links outside of the workspace lead to; otherwise such"
        " links are refused",
    )


def follows_links(cfg: Mapping[str, CfgVal]) -> bool:
    """Return the value of the option ``follow_links``, for :func:`workspace_files`."""
    return bool(cfg.get(_NAME))
