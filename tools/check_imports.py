"""Checks that every distribution imports only what it declares, lazy imports included.

Isolation runs what it runs; an import inside a function that no test calls, or one that pytest's
own dependencies happen to satisfy, is found here: every ``import`` in ``src/`` has to be of the
standard library, of the distribution itself, or of something in its row of the table
(``tools/distributions.py``).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import distributions

# Requirements whose import name is not their own name in lower case.
IMPORT_NAMES = {
    "hydra-core": ("hydra", "omegaconf"),
    "ipython": ("IPython",),
    "mlflow-skinny": ("mlflow",),
    "pytest": ("pytest", "_pytest"),
    "boto3": ("boto3", "botocore"),
    "pyyaml": ("yaml",),
}


def import_names(requirement: str) -> tuple[str, ...]:
    """The names under which a requirement is imported."""
    name = re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]
    if name in distributions.BY_NAME:
        return (distributions.BY_NAME[name].module,)
    return IMPORT_NAMES.get(name.lower(), (name.lower().replace("-", "_"),))


def allowed(distribution: distributions.Distribution) -> set[str]:
    """The top-level names that ``distribution`` may import."""
    # `typing_extensions` is for the eyes of type checkers, which bring it along; a use of it at
    # run time fails in isolation.
    names = {distribution.module, *distribution.optional, "typing_extensions", "_typeshed"}
    names.update(sys.stdlib_module_names)
    extras = [name for names in distribution.extras.values() for name in names]
    for requirement in (*distribution.ours, *distribution.others, *extras):
        names.update(import_names(requirement))
    return names


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every absolute import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.partition(".")[0]


def main() -> int:
    wrong = 0
    for distribution in distributions.members():
        names = allowed(distribution)
        for path in sorted(distribution.source.glob("**/*.py")):
            for line, name in imports(path):
                if name not in names:
                    wrong += 1
                    where = f"{path.relative_to(distributions.ROOT)}:{line}"
                    print(f"{where}: {distribution.name} imports {name} and doesn't declare it")
    print(f"imports of {len(distributions.members())} distributions checked, {wrong} undeclared")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
