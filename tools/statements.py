"""Print the number of statements of each package, of its tests, and of the integration tests.

Docstrings do not count. The size of the code is stated in statements, because lines depend on the
formatting.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from workspace import ROOT

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def statements(files: Iterable[Path]) -> int:
    """Return the number of statements in Python files."""
    trees = [ast.parse(file.read_bytes()) for file in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    docstrings = sum(
        isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None
        for node in nodes
    )
    return sum(isinstance(node, ast.stmt) for node in nodes) - docstrings


def main() -> None:
    total = tests = 0
    for package in sorted((ROOT / "packages").iterdir()):
        own = statements((package / "src").rglob("*.py"))
        tested = statements((package / "tests").rglob("*.py"))
        print(f"{package.name:26} {own:6,} {tested:6,}")
        total, tests = total + own, tests + tested
    folders = {name: statements((ROOT / name).rglob("*.py")) for name in ("integration", "tools")}
    print(f"{'all':26} {total:6,} {tests:6,}")
    for name, count in folders.items():
        print(f"{name:26} {'':6} {count:6,}")


if __name__ == "__main__":
    main()
