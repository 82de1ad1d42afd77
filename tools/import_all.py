"""Import every module of a package: ``python -I tools/import_all.py PACKAGE [NAME ...]``.

Fail unless the package is installed in this environment and each module imports. A module that
lacks one of the optional imports NAME is reported instead.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence


def main(name: str, optional: Sequence[str]) -> str:
    """Import a package and its modules, and return a summary."""
    package = importlib.import_module(name)
    if not (package.__file__ or "").startswith(sys.prefix):
        raise SystemExit(f"{name} comes from {package.__file__}, not from {sys.prefix}")
    count = 1
    skipped = []
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if module.name.endswith(".__main__"):
            continue  # Importing a program runs it.
        try:
            importlib.import_module(module.name)
            count += 1
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in optional:
                raise
            skipped.append(f", skipped {module.name} (needs {missing})")
    return f"imported {count} modules" + "".join(skipped)


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2:]))
