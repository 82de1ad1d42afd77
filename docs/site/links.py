"""Convert links to files of the repository into links to pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
# The Markdown of the site needs quotes around the title of a block.
TITLE = re.compile(r"^(```\w+) title=([^\s\"]+)$", re.M)
FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.M | re.S)


def rewrite(text: str, source: str, page: str, pages: Mapping[str, str]) -> str:
    """Return the Markdown of a page with links that work on the site.

    A link to a file that is not on the site is replaced by its label.

    Args:
        text: The Markdown, with links that work in the repository.
        source: Path of the page's file in the repository.
        page: Path of the page on the site, such as ``packages/torchx-kit.md``.
        pages: The path on the site for each file of the repository that is a page.
    """
    text = TITLE.sub(r'\1 title="\2"', text)

    def replaced(match: re.Match[str]) -> str:
        label, target = match.groups()
        path, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if path not in pages:
            return label if label.startswith("`") else f"`{path}`" if label == path else label
        found = posixpath.relpath(pages[path], posixpath.dirname(page) or ".")
        return f"[{label}]({found}{'#' + anchor if anchor else ''})"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(replaced, part) for part in parts)
