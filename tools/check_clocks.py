"""Refuse upper bounds on elapsed and processor time in tests: ``check_clocks.py [FILE ...]``.

On a busy machine such a test fails by chance. A test counts requests, polls or steps, or passes a
clock to the product. It waits with ``wait_for`` of tools/testing/patience.py.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from workspace import ROOT

TESTS = [
    "packages/*/tests/**/*.py",
    "integration/**/test_*.py",
    "integration/**/conftest.py",
    "tools/tests/*.py",
]
#: Functions of `time` whose values mean nothing but elapsed time.
ELAPSED = {"monotonic", "perf_counter", "process_time", "thread_time"}
CLOCKS = {*ELAPSED, "time"}
#: Fields of the result of `resource.getrusage` that depend on the load of the machine.
USAGE = {"ru_utime", "ru_stime", "ru_nvcsw", "ru_nivcsw"}


def _clocks(node: ast.AST) -> set[str]:
    """Return the names of the clocks that an expression reads."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and not part.args:
            name = part.func.attr if isinstance(part.func, ast.Attribute) else None
            name = part.func.id if isinstance(part.func, ast.Name) else name
            found.add((name or "").removesuffix("_ns"))
    return found & CLOCKS


def _is_elapsed(node: ast.AST, names: set[str]) -> bool:
    """Whether the value of an expression depends on elapsed time."""
    if _clocks(node) & ELAPSED:
        return True
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in names:
            return True
        if isinstance(part, ast.Attribute) and part.attr in USAGE:
            return True
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and _clocks(part):
            return True
    return False


def bounds(source: str) -> Iterator[int]:
    """Yield the lines of a test file in which elapsed time is compared."""
    tree = ast.parse(source)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for scope in (node for node in ast.walk(tree) if isinstance(node, functions)):
        names: set[str] = set()
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign) and _is_elapsed(node.value, names):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        for node in ast.walk(scope):
            if isinstance(node, ast.Compare) and _is_elapsed(node, names):
                yield node.lineno


def main(arguments: list[str]) -> int:
    files = [Path(name) for name in arguments]
    files = files or [file for pattern in TESTS for file in sorted(ROOT.glob(pattern))]
    found = [f"{file}:{line}" for file in files for line in sorted({*bounds(file.read_text())})]
    for place in found:
        print(f"{place}: compares elapsed time. Count events, or pass a clock (CONTRIBUTING.md).")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
