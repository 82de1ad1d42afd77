"""Check that the headings of docs/troubleshooting.md are messages of the code."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"


def texts() -> str:
    """Return all string constants of the packages, one after the other on separate lines.

    Each constant part of an f-string is a string constant of its own.
    """
    trees = [ast.parse(path.read_bytes()) for path in ROOT.glob("packages/*/src/**/*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    constants = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return "\n".join(value for value in constants if isinstance(value, str))


def problems() -> Iterator[str]:
    """Yield the headings that are not a message of the code."""
    known = texts()
    for heading in re.findall(r"^### (.+)$", PAGE.read_text("utf-8"), re.M):
        parts = [part.strip(" '") for part in heading.split("…")]
        missing = [part for part in parts if len(part) > 3 and part not in known]
        if missing:
            yield f"{PAGE.name}: no message has {missing}: {heading}"


if __name__ == "__main__":
    found = list(problems())
    print(*found, f"{len(found)} problems of messages", sep="\n")
    sys.exit(bool(found))
