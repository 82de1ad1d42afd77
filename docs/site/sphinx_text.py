"""Convert docstrings from Sphinx's notation to Markdown."""

from __future__ import annotations

import re

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc|obj):`(~?)!?([\w.]+)`")
BLOCK = re.compile(r"::$", re.M)
DOCTEST = re.compile(r"^( *)(>>> (?:.*\n)(?:\1\S.*\n)*)", re.M)


def as_markdown(text: str) -> str:
    """Return a docstring with Markdown in place of Sphinx's roles, literal blocks and doctests."""

    def link(match: re.Match[str]) -> str:
        short, name = match.groups()
        shown = name.rpartition(".")[2] if short else name
        return f"`{shown}`"

    text = ROLE.sub(link, text).replace("`\\ ", "`")
    text = DOCTEST.sub(lambda match: f"{match[1]}```pycon\n{match[0]}{match[1]}```\n", text + "\n")
    return BLOCK.sub(":", text)
